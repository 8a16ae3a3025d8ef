// The page that `lull replay --html` writes: draws the data that stands in it. Needs no network.
'use strict';
const data = JSON.parse(document.getElementById('data').textContent), r = data.result;
const $ = id => document.getElementById(id);
const el = (tag, cls, text) => { const e = document.createElement(tag); if (cls) e.className = cls; if (text !== undefined) e.textContent = text; return e; };
const css = name => getComputedStyle(document.documentElement).getPropertyValue('--' + name).trim();
const bytes = text => { const s = atob(text), out = new Uint8Array(s.length); for (let i = 0; i < s.length; i++) out[i] = s.charCodeAt(i); return out; };
const count = n => n.toLocaleString('en-US');
const num = n => n === null ? '–' : n >= 1000 ? Math.round(n).toLocaleString('en-US') : n.toFixed(n >= 100 ? 0 : n >= 10 ? 1 : 2);
const pct = n => n === null || n === undefined ? '' : n.toFixed(1) + ' %';
const pad = n => String(n).padStart(2, '0');
function span(s) {
  if (s < 1) return Math.round(s * 1000) + 'ms';
  if (s < 60) return (s < 10 ? +s.toFixed(1) : Math.round(s)) + 's';
  s = Math.round(s);
  const d = Math.floor(s / 86400), h = Math.floor(s / 3600) % 24, m = Math.floor(s / 60) % 60, q = s % 60;
  return [d && d + 'd', h && h + 'h', m && m + 'm', q && !d && q + 's'].filter(Boolean).join('');
}
// Times are shown as the trace has them: UTC, some wall clock, or from its start.
function moment(s, fine) {
  if (!data.epoch) return span(s);
  const d = new Date(s * 1000);
  const clock = pad(d.getUTCHours()) + ':' + pad(d.getUTCMinutes()) + ':' + pad(d.getUTCSeconds()) +
    (fine ? '.' + String(d.getUTCMilliseconds()).padStart(3, '0') : '');
  return d.getUTCFullYear() + '-' + pad(d.getUTCMonth() + 1) + '-' + pad(d.getUTCDate()) + ' ' + clock + (data.zoned ? 'Z' : '');
}
function tick(s, step) {
  if (!data.epoch) return span(s - data.from);
  const d = new Date(s * 1000);
  if (step >= 86400 || (d.getUTCHours() === 0 && d.getUTCMinutes() === 0 && d.getUTCSeconds() === 0 && step >= 3600))
    return d.getUTCDate() + ' ' + ['Jan','Feb','Mar','Apr','May','Jun','Jul','Aug','Sep','Oct','Nov','Dec'][d.getUTCMonth()];
  const hm = pad(d.getUTCHours()) + ':' + pad(d.getUTCMinutes());
  return step >= 60 ? hm : step >= 1 ? hm + ':' + pad(d.getUTCSeconds()) : pad(d.getUTCMinutes()) + ':' + (d.getUTCSeconds() + d.getUTCMilliseconds() / 1000).toFixed(1).padStart(4, '0');
}

// ---- words and totals
$('rule').textContent = r.rule;
$('sub').textContent = (r.arm ? 'armed by ' + r.arm + ' · ' : '') + (r.per === 'all' ? 'all GPUs together' : 'each GPU by itself') + ' · ' +
  r.gpus + (r.gpus === 1 ? ' GPU' : ' GPUs') + ' · ' + count(r.samples) + ' samples · ' + moment(data.from) + ' to ' + moment(data.to) +
  ' (' + span(data.to - data.from) + ')' + (r.bad_rows ? ' · ' + count(r.bad_rows) + ' rows could not be read' : '');
const worth = h => r.price_per_hour === undefined ? '' : 'worth ' + (h * r.price_per_hour).toLocaleString('en-US', {minimumFractionDigits: 2, maximumFractionDigits: 2});
const join = (...parts) => parts.filter(Boolean).join(' · ');
for (const [value, name, more, cls] of [
  [num(r.seen_hours), 'GPU-hours seen', worth(r.seen_hours)],
  [num(r.idle_hours), 'GPU-hours idle', join(pct(r.seen_hours ? 100 * r.idle_hours / r.seen_hours : null), worth(r.idle_hours))],
  [num(r.reclaimed_hours), 'GPU-hours reclaimed', join(pct(r.reclaimed_percent), worth(r.reclaimed_hours)), 'kept'],
  [count(r.firings), r.firings === 1 ? 'firing' : 'firings', ''],
  [count(r.came_back), 'came back', pct(r.came_back_percent), r.came_back ? 'back' : ''],
  [count(r.regretted), 'regretted', 'within ' + span(r.regret_seconds), r.regretted ? 'regret' : '']]) {
  const t = el('div', 'tile'); t.append(el('b', cls, value), el('span', '', name), el('em', '', more)); $('tiles').append(t);
}
for (const [color, text] of [['busy', 'value'], ['idle', 'idle'], ['none', 'not seen'], ['kept', 'fired, stayed idle'], ['back', 'came back'], ['regret', 'regretted']]) {
  const s = el('span'), i = el('i'); i.style.background = 'var(--' + color + ')'; s.append(i, text); $('legend').append(s);
}
data.metrics.forEach((m, i) => { const o = el('option', '', m.name + (m.unit ? ' (' + m.unit + ')' : '')); o.value = i; $('metric').append(o); });

// ---- timeline: GPUs in the order of their names
const gpus = data.strips.map((s, i) => ({
  label: (r.per_gpu[i] || {gpu: String(i)}).gpu, index: i, from: s.from, idle: bytes(s.idle), values: s.values.map(v => v.map(bytes)), marks: []}));
for (const m of data.marks) { if (m[0] < 0) gpus.forEach(g => g.marks.push(m)); else if (gpus[m[0]]) gpus[m[0]].marks.push(m); }
gpus.sort((a, b) => a.label.localeCompare(b.label, undefined, {numeric: true}));
const canvas = $('lines'), ctx = canvas.getContext('2d'), view = {from: data.from, to: Math.max(data.to, data.from + data.width)};
const many = gpus.length > 40, row = gpus.length <= 8 ? 52 : gpus.length <= 20 ? 34 : many ? 11 : 22;
const gapY = many ? 1 : 5, top_ = 4, axis = 26;
let left = 60, W = 0, drag = null;
const x = t => left + (t - view.from) / (view.to - view.from) * (W - left);
const time = px => view.from + (px - left) / (W - left) * (view.to - view.from);
const colors = ['kept', 'back', 'regret'];
const ending = k => k[4] === 2 ? 'came back: regretted' : ['came back', 'unknown', 'gap', 'end of trace'][k[5]];
function draw() {
  const ratio = window.devicePixelRatio || 1, H = top_ + gpus.length * (row + gapY) + axis;
  W = canvas.clientWidth;
  canvas.width = W * ratio; canvas.height = H * ratio; canvas.style.height = H + 'px';
  ctx.setTransform(ratio, 0, 0, ratio, 0, 0);
  ctx.font = (many ? 10 : 12) + 'px system-ui, sans-serif';
  left = Math.min(180, 10 + Math.max(...gpus.map(g => ctx.measureText(g.label).width), 20));
  const m = +$('metric').value || 0, paint = Object.fromEntries(['busy', 'busy-soft', 'idle', 'none', 'dim', 'line', 'ink', ...colors].map(n => [n, css(n)]));
  gpus.forEach((g, k) => drawRow(g, top_ + k * (row + gapY), m, paint));
  drawAxis(H, paint);
  if (drag && drag.to !== null) { ctx.fillStyle = paint.ink; ctx.globalAlpha = .12; ctx.fillRect(Math.min(drag.from, drag.to), 0, Math.abs(drag.to - drag.from), H - axis); ctx.globalAlpha = 1; }
}
function drawRow(g, y, m, paint) {
  const w = data.width, n = g.idle.length, [low, high] = g.values[m] || [[], []];
  ctx.fillStyle = paint.none; ctx.fillRect(left, y, W - left, row);
  const first = Math.max(0, Math.floor((view.from - g.from) / w)), last = Math.min(n - 1, Math.ceil((view.to - g.from) / w));
  // One bar a pixel, whatever the number of slices.
  let px = null, lo = 255, hi = -1, idle = 0, seen = 0;
  const flush = (p, width) => {
    if (seen) {
      ctx.fillStyle = paint.idle; const share = idle / seen / 250;
      ctx.clearRect(p, y, width, row);
      if (share > 0) { ctx.globalAlpha = Math.min(1, .15 + .85 * share); ctx.fillRect(p, y, width, row); ctx.globalAlpha = 1; }
      if (hi >= 0) {
        const bar = v => Math.max(1, v / 250 * (row - 2));
        ctx.fillStyle = paint['busy-soft']; ctx.fillRect(p, y + row - bar(hi), width, bar(hi));
        ctx.fillStyle = paint.busy; ctx.fillRect(p, y + row - bar(lo), width, bar(lo));
      }
    }
    lo = 255; hi = -1; idle = 0; seen = 0;
  };
  const pxPer = w / (view.to - view.from) * (W - left);
  for (let i = first; i <= last; i++) {
    const a = Math.max(left, Math.floor(x(g.from + i * w))), b = Math.min(W, Math.max(a + 1, Math.floor(x(g.from + (i + 1) * w))));
    if (px !== null && a !== px.a) { flush(px.a, px.b - px.a); px = null; }
    px = {a: px ? px.a : a, b: Math.max(px ? px.b : b, b)};
    if (g.idle[i] === 255) continue;
    seen++; idle += g.idle[i];
    if (high[i] !== undefined && high[i] !== 255) { lo = Math.min(lo, low[i]); hi = Math.max(hi, high[i]); }
  }
  if (px) flush(px.a, px.b - px.a);
  const thick = many ? 3 : 5;
  for (const [, at, , after, kind] of g.marks) {
    if (at > view.to || at + after < view.from) continue;
    const a = Math.max(left, x(at)), b = Math.min(W, x(at + after));
    ctx.fillStyle = paint[colors[kind]];
    ctx.fillRect(a, y, Math.max(b - a, 1.5), thick);
    if (at >= view.from) ctx.fillRect(a, y, many ? 1.5 : 2, row);
  }
  ctx.fillStyle = paint.dim; ctx.textBaseline = 'middle'; ctx.textAlign = 'right';
  if (row >= 10) ctx.fillText(fit(g.label, left - 8), left - 6, y + row / 2 + .5);
}
function fit(text, width) {
  if (ctx.measureText(text).width <= width) return text;
  while (text.length > 1 && ctx.measureText('…' + text).width > width) text = text.slice(1);
  return '…' + text;
}
const steps = [.1, .2, .5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800, 604800, 1209600, 2592000];
function drawAxis(H, paint) {
  const want = (view.to - view.from) / Math.max(2, (W - left) / 90), step = steps.find(s => s >= want) || Math.ceil(want / 2592000) * 2592000;
  const origin = data.epoch ? 0 : data.from;
  ctx.textBaseline = 'alphabetic'; ctx.textAlign = 'center'; ctx.font = '12px system-ui, sans-serif';
  for (let t = origin + Math.ceil((view.from - origin) / step) * step; t <= view.to; t += step) {
    const px = Math.round(x(t)) + .5; ctx.strokeStyle = paint.line; ctx.beginPath(); ctx.moveTo(px, H - axis); ctx.lineTo(px, H - axis + 5); ctx.stroke();
    const text = tick(t, step), half = ctx.measureText(text).width / 2;
    ctx.fillStyle = paint.dim; ctx.fillText(text, Math.min(Math.max(px, left + half), W - half), H - 7);
  }
}

// ---- looking closer, and what is under the pointer
const local = e => { const box = canvas.getBoundingClientRect(); return [Math.min(W, Math.max(left, e.clientX - box.left)), e.clientY - box.top]; };
const zoom = (from, to) => { view.from = from; view.to = to; $('out').disabled = from <= data.from && to >= data.to; draw(); };
canvas.addEventListener('pointerdown', e => { drag = {from: local(e)[0], to: null}; canvas.setPointerCapture(e.pointerId); });
canvas.addEventListener('pointermove', e => { if (drag) { drag.to = local(e)[0]; draw(); } hover(e); });
canvas.addEventListener('pointerup', e => {
  if (drag && drag.to !== null && Math.abs(drag.to - drag.from) > 5) {
    const a = time(Math.min(drag.from, drag.to)), b = time(Math.max(drag.from, drag.to)); drag = null;
    if (b - a > data.width * 4) return zoom(a, b);
  }
  drag = null; draw();
});
canvas.addEventListener('pointerleave', () => { $('tip').style.display = 'none'; });
const whole = () => zoom(data.from, Math.max(data.to, data.from + data.width));
$('out').onclick = whole; canvas.ondblclick = whole; $('metric').onchange = draw;
function hover(e) {
  const [px, py] = local(e), g = gpus[Math.floor((py - top_) / (row + gapY))], tip = $('tip');
  if (!g || px <= left) { tip.style.display = 'none'; return; }
  const t = time(px), i = Math.floor((t - g.from) / data.width), m = +$('metric').value || 0, metric = data.metrics[m];
  const lines = ['GPU ' + g.label + ' · ' + moment(t, view.to - view.from < 600)];
  if (i < 0 || i >= g.idle.length || g.idle[i] === 255) lines.push('not seen');
  else {
    if (metric) {
      const [low, high] = g.values[m], v = b => metric.top >= 1e6 ? (b / 250 * metric.top / 2 ** 30).toFixed(1) + ' Gi' + metric.unit : Math.round(b / 250 * metric.top) + ' ' + metric.unit;
      lines.push(metric.name + ' ' + (high[i] === 255 ? 'unknown' : low[i] === high[i] ? v(low[i]) : v(low[i]) + ' to ' + v(high[i])));
    }
    lines.push('idle in ' + Math.round(g.idle[i] / 2.5) + ' % of the samples');
  }
  const slack = 3 / (W - left) * (view.to - view.from);
  const mark = g.marks.find(k => t >= k[1] - slack && t <= k[1] + Math.max(k[3], slack));
  if (mark) lines.push('fired ' + moment(mark[1]) + ' after ' + span(mark[2]) + ', stayed idle ' + span(mark[3]) + ', then ' + ending(mark));
  tip.textContent = lines.join('\n'); tip.style.display = 'block';
  tip.style.left = Math.min(e.clientX + 14, window.innerWidth - tip.offsetWidth - 8) + 'px'; tip.style.top = (e.clientY + 16) + 'px';
}

// ---- sweep: reclaimed and regretted over `for` (or the first axis), a line for each of the rest
const svg = (tag, attrs, text) => { const e = document.createElementNS('http://www.w3.org/2000/svg', tag); for (const k in attrs) e.setAttribute(k, attrs[k]); if (text !== undefined) e.textContent = text; return e; };
const shades = ['--busy', '--kept', '--back', '--knee', '--regret', '--dim'];
function nice(top) { const p = 10 ** Math.floor(Math.log10(top)); return [1, 1.2, 1.6, 2, 2.4, 3, 4, 5, 6, 8, 10].map(k => k * p).find(v => v >= top); }
function chart(title, rows, axis, value, format, least) {
  const box = el('div', 'chart'), W = 640, H = 270, l = 58, b = 34, t = 12, right = 16;
  const main = data.axes[axis], rest = data.axes.filter((_, i) => i !== axis), lines = new Map();
  rows.forEach(q => { const key = rest.map(a => a.name + ' ' + q[a.name]).join(', '); if (!lines.has(key)) lines.set(key, []); lines.get(key).push(q); });
  const top = nice(Math.max(...rows.map(value), least || 1e-9)), n = main.values.length;
  const px = i => n === 1 ? (l + W - right) / 2 : l + 18 + i * (W - l - right - 36) / (n - 1), py = v => H - b - v / top * (H - b - t);
  const s = svg('svg', {viewBox: `0 0 ${W} ${H}`, role: 'img', 'aria-label': title});
  for (let k = 0; k <= 4; k++) {
    const y = py(top * k / 4);
    s.append(svg('line', {x1: l, x2: W - right, y1: y, y2: y, style: 'stroke:var(--line)'}), svg('text', {x: l - 8, y: y + 4, 'text-anchor': 'end'}, format(top * k / 4, top)));
  }
  main.values.forEach((v, i) => s.append(svg('text', {x: px(i), y: H - b + 19, 'text-anchor': 'middle'}, v)));
  let c = 0;
  for (const [, points] of lines) {
    const color = 'var(' + shades[c++ % shades.length] + ')', at = q => px(main.values.indexOf(q[main.name]));
    s.append(svg('polyline', {points: points.map(q => at(q) + ',' + py(value(q))).join(' '), style: `fill:none;stroke:${color};stroke-width:2`}));
    for (const q of points) {
      const dot = svg('circle', {cx: at(q), cy: py(value(q)), r: 4, style: `fill:${color}`});
      dot.append(svg('title', {}, q.rule + ': ' + format(value(q), 0))); s.append(dot);
      if (q.knee) s.append(svg('circle', {cx: at(q), cy: py(value(q)), r: 9, style: 'fill:none;stroke:var(--knee);stroke-width:2.5'}));
    }
  }
  box.append(el('h3', '', title), s);
  if (rest.length) {
    const legend = el('div', 'legend'); c = 0;
    for (const [key] of lines) { const e = el('span'), i = el('i'); i.style.background = 'var(' + shades[c++ % shades.length] + ')'; e.append(i, key); legend.append(e); }
    box.append(legend);
  }
  return box;
}
function fill(table, heads, rows) {
  const tr = el('tr'); heads.forEach(([text, cls]) => tr.append(el('th', cls, text))); const head = el('thead'); head.append(tr);
  const body = el('tbody');
  for (const {cells, cls} of rows) { const line = el('tr', cls); cells.forEach((c, i) => { const [text, k] = Array.isArray(c) ? c : [c, '']; line.append(el('td', [heads[i][1], k].filter(Boolean).join(' '), text)); }); body.append(line); }
  table.append(head, body);
}
if (r.sweep) {
  $('sweep').hidden = false;
  const axis = Math.max(0, data.axes.findIndex(a => a.name === 'for'));
  $('charts').append(chart('GPU-hours reclaimed', r.sweep, axis, q => q.reclaimed_hours, (v, top) => count(+v.toFixed(top > 40 ? 0 : 2))),
    chart('firings regretted', r.sweep, axis, q => q.regretted, v => count(+v.toFixed(1)), 4));
  if (r.knees) $('knee').textContent = r.knees.length ? 'Knee (ringed): ' + r.knees.map(q => q.rule).join('; ') +
    ': the longest timeout that still reclaims 80 % of what the shortest does at under a tenth of its regrets.' :
    'No knee: no timeout reclaims 80 % of what the shortest does at under a tenth of its regrets.';
  fill($('rows'), [...data.axes.map(a => [a.name, '']), ['firings', ''], ['came back', ''], ['regretted', ''], ['idle h', ''], ['reclaimed h', ''], ['of seen', ''], ...(r.price_per_hour === undefined ? [] : [['worth', '']]), ['', 'l']],
    r.sweep.map(q => ({cls: q.knee ? 'knee' : '', cells: [...data.axes.map(a => q[a.name]), count(q.firings), count(q.came_back), count(q.regretted), num(q.idle_hours), num(q.reclaimed_hours), pct(q.reclaimed_percent), ...(r.price_per_hour === undefined ? [] : [q.reclaimed_cost.toFixed(2)]), q.knee ? '◄ knee' : '']})));
}
const each = r.per === 'gpu';
fill($('gpus'), [['GPU', 'l'], ['seen h', ''], ...(each ? [['idle h', ''], ['idle', ''], ['reclaimed h', ''], ['firings', ''], ['regretted', '']] : [['samples', '']])],
  gpus.map(g => r.per_gpu[g.index]).filter(Boolean).map(g => ({cells: [g.gpu, num(g.seen_hours), ...(each ? [num(g.idle_hours), pct(g.seen_hours ? 100 * g.idle_hours / g.seen_hours : null), num(g.reclaimed_hours), count(g.firings), [count(g.regretted), g.regretted ? 'regret' : '']] : [count(g.samples)])]})));
const shown = data.marks.slice(0, 500);
fill($('firings'), [['GPU', 'l'], ['when', 'l'], ['idle before', ''], ['stayed idle', ''], ['then', 'l']],
  shown.map(k => ({cells: [k[0] < 0 ? 'all' : r.per_gpu[k[0]].gpu, moment(k[1]), span(k[2]), span(k[3]), [ending(k), colors[k[4]]]]})));
$('more').textContent = r.firings > shown.length ? 'and ' + count(r.firings - shown.length) + ' more (lull replay --csv has them all)' : r.firings ? '' : 'None.';
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', draw);
addEventListener('resize', draw);
draw();
