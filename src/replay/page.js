// The page that `lull replay --html` writes: draws the data that stands in it. Needs no network.
'use strict';
const data = JSON.parse(document.getElementById('data').textContent), r = data.result;
const bytes = text => { const s = atob(text), out = new Uint8Array(s.length); for (let i = 0; i < s.length; i++) out[i] = s.charCodeAt(i); return out; };
// Times are shown as the trace has them: in its zone, by some wall clock, or from its start.
const wall = s => new Date((s + 60 * data.zone) * 1000);
function moment(s, fine) {
  if (!data.epoch) return span(s);
  const d = wall(s);
  const clock = pad(d.getUTCHours()) + ':' + pad(d.getUTCMinutes()) + ':' + pad(d.getUTCSeconds()) +
    (fine ? '.' + String(d.getUTCMilliseconds()).padStart(3, '0') : '');
  return d.getUTCFullYear() + '-' + pad(d.getUTCMonth() + 1) + '-' + pad(d.getUTCDate()) + ' ' + clock + (!data.zoned ? '' : data.zone ? hourText(data.zone) : 'Z');
}
// Where it is all of one day, the day stands at the top and nowhere else.
const day = s => wall(s).toISOString().slice(0, 10);
const oneDay = data.epoch && day(data.from) === day(data.to);
const brief = s => oneDay ? moment(s).slice(11, 19) : moment(s);
// What the names of all hosts end in tells none from another: node007/3, not node007.cluster.example.org/3.
const domainOf = name => { const host = name.split('/')[0], dot = host.indexOf('.'); return dot < 0 ? '' : host.slice(dot); };
const domain = r.per_gpu.length && r.per_gpu.every(g => domainOf(g.gpu) === domainOf(r.per_gpu[0].gpu)) ? domainOf(r.per_gpu[0].gpu) : '';
const longOrNot = text => [text, text.length > 14 ? 'wrap' : ''];  // a short name is never broken
const short = name => domain ? name.replaceAll(domain, '') : name;
function tick(s, step) {
  if (!data.epoch) return span(s - data.from);
  const d = wall(s);
  if (step >= 86400 || (d.getUTCHours() === 0 && d.getUTCMinutes() === 0 && d.getUTCSeconds() === 0 && step >= 3600))
    return d.getUTCDate() + ' ' + ['Jan','Feb','Mar','Apr','May','Jun','Jul','Aug','Sep','Oct','Nov','Dec'][d.getUTCMonth()];
  const hm = pad(d.getUTCHours()) + ':' + pad(d.getUTCMinutes());
  return step >= 60 ? hm : step >= 1 ? hm + ':' + pad(d.getUTCSeconds()) : pad(d.getUTCMinutes()) + ':' + (d.getUTCSeconds() + d.getUTCMilliseconds() / 1000).toFixed(1).padStart(4, '0');
}

// ---- words first
$('name').textContent = data.name + (data.name ? ' · ' : '') + moment(data.from) + ' to ' + moment(data.to) + ' (' + span(data.to - data.from) + ')';
document.title = (data.name ? data.name + ': ' : '') + 'lull replay';
$('answer').textContent = r.answer;
$('basis').textContent = r.basis;
$('rule').textContent = r.rule;
$('sub').textContent = (r.arm ? ', armed by ' + r.arm : '') + ' · ' + count(r.samples) + ' samples';
for (const [color, text] of [['busy', 'value'], ['idle', 'idle'], ['none', 'not seen'], ['regret', 'ended, worked again later'], ['kept', 'ended, then released'], ['back', 'ended, not seen again']]) {
  const s = el('span'), i = el('i', color === 'none' ? 'none' : ''); if (color !== 'none') i.style.background = 'var(--' + color + ')'; s.append(i, text); $('legend').append(s);
}
data.metrics.forEach((m, i) => { const o = el('option', '', m.name + (m.unit ? ' (' + m.unit + ')' : '')); o.value = i; $('metric').append(o); });

// ---- timeline: the GPUs that wasted most first
const gpus = data.strips.map((s, i) => ({
  label: short((r.per_gpu[i] || {gpu: String(i)}).gpu), index: i, from: s.from, idle: bytes(s.idle), values: s.values.map(v => v.map(bytes)), marks: []}));
// What was judged together is marked on each of its GPUs.
const members = m => m[0] < 0 ? gpus : data.subjects.length ? (data.subjects[m[0]] || {gpus: []}).gpus.map(i => gpus[i]).filter(Boolean) : gpus[m[0]] ? [gpus[m[0]]] : [];
for (const m of data.marks) members(m).forEach(g => g.marks.push(m));
for (const g of gpus) { g.wasted = 0; g.idle.forEach(i => { if (i !== 255) g.wasted += i; }); }
gpus.sort((a, b) => b.wasted - a.wasted || a.label.localeCompare(b.label, undefined, {numeric: true}));
const canvas = $('lines'), ctx = canvas.getContext('2d'), view = {from: data.from, to: Math.max(data.to, data.from + data.width)};
const many = false, row = gpus.length <= 8 ? 52 : 34;
const gapY = 8, top_ = 6, axis = 44;
const screenful = Math.max(4, Math.floor(window.innerHeight * .7 / (row + gapY)));
let shownGpus = Math.min(gpus.length, screenful);
const visible = () => gpus.slice(0, shownGpus);
let hatch = null;
let left = 60, W = 0, drag = null;
const x = t => left + (t - view.from) / (view.to - view.from) * (W - left);
const time = px => view.from + (px - left) / (W - left) * (view.to - view.from);
// What became of an ended job: worked again, released, not seen again.
const colors = ['regret', 'kept', 'back'];
const became = ['worked again', 'released', 'not seen again'];
function draw() {
  const ratio = window.devicePixelRatio || 1, H = top_ + shownGpus * (row + gapY) + axis;
  W = canvas.clientWidth;
  canvas.width = W * ratio; canvas.height = H * ratio; canvas.style.height = H + 'px';
  ctx.setTransform(ratio, 0, 0, ratio, 0, 0);
  ctx.font = (many ? 10 : 12) + 'px system-ui, sans-serif';
  left = Math.min(W / 3, 180, 46 + Math.max(...visible().map(g => ctx.measureText(g.label).width), 20));
  const m = +$('metric').value || 0, paint = Object.fromEntries(['busy', 'busy-soft', 'idle', 'none', 'hatch', 'dim', 'line', 'ink', ...colors].map(n => [n, css(n)]));
  hatch = stripes(ctx, paint.none, paint.hatch);
  visible().forEach((g, k) => drawRow(g, top_ + k * (row + gapY), m, paint));
  drawAxis(H, paint);
  if (drag && drag.to !== null) { ctx.fillStyle = paint.ink; ctx.globalAlpha = .12; ctx.fillRect(Math.min(drag.from, drag.to), 0, Math.abs(drag.to - drag.from), H - axis); ctx.globalAlpha = 1; }
}
const topText = metric => !metric ? '' : metric.top >= 1e6 ? (metric.top / 2 ** 30).toFixed(0) + 'Gi' : String(metric.top >= 10 ? Math.round(metric.top) : +metric.top.toPrecision(2));
function drawRow(g, y, m, paint) {
  const w = data.width, n = g.idle.length, [low, high] = g.values[m] || [[], []];
  ctx.fillStyle = hatch; ctx.fillRect(left, y, W - left, row);
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
  for (const [, at, after, kind] of g.marks) {
    if (at > view.to || at + after < view.from) continue;
    const a = Math.max(left, x(at)), b = Math.min(W, x(at + after));
    ctx.fillStyle = paint[colors[kind]];
    ctx.fillRect(a, y, Math.max(b - a, 1.5), thick);
    if (at >= view.from) ctx.fillRect(a, y, many ? 1.5 : 2, row);
  }
  ctx.fillStyle = paint.dim; ctx.textBaseline = ''; ctx.textAlign = 'right';
  ctx.font = '10px system-ui, sans-serif';
  ctx.fillText(topText(data.metrics[m]), left - 4, y + 5); ctx.fillText('0', left - 4, y + row - 4);
  ctx.font = '12px system-ui, sans-serif';
  ctx.fillText(fitText(ctx, g.label, left - 40), left - 34, y + row / 2 + .5);
}
const steps = [.1, .2, .5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800, 604800, 1209600, 2592000];
function drawAxis(H, paint) {
  const want = (view.to - view.from) / Math.max(2, (W - left) / 90), step = steps.find(s => s >= want) || Math.ceil(want / 2592000) * 2592000;
  const origin = data.epoch ? -60 * data.zone : data.from;
  ctx.textBaseline = 'alphabetic'; ctx.textAlign = 'center'; ctx.font = '12px system-ui, sans-serif';
  for (let t = origin + Math.ceil((view.from - origin) / step) * step; t <= view.to; t += step) {
    const px = Math.round(x(t)) + .5; ctx.strokeStyle = paint.line; ctx.beginPath(); ctx.moveTo(px, H - axis); ctx.lineTo(px, H - axis + 5); ctx.stroke();
    const text = tick(t, step), half = ctx.measureText(text).width / 2;
    ctx.fillStyle = paint.dim; ctx.fillText(text, Math.min(Math.max(px, left + half), W - half), H - axis + 18);
  }
  ctx.fillText(zoneText, left + (W - left) / 2, H - 5);
}
const hourText = minutes => (minutes < 0 ? '-' : '+') + pad(Math.floor(Math.abs(minutes) / 60)) + ':' + pad(Math.abs(minutes) % 60);
const zoneText = !data.epoch ? 'time since the start of the trace' : !data.zoned ? 'time, as the trace has it (it names no zone)' : data.zone ? 'time (UTC' + hourText(data.zone) + ')' : 'time (UTC)';

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
$('out').onclick = whole; canvas.ondblclick = whole;
function hover(e) {
  const [px, py] = local(e), g = visible()[Math.floor((py - top_) / (row + gapY))], tip = $('tip');
  if (!g || px <= left) { tip.style.display = 'none'; return; }
  const t = time(px), i = Math.floor((t - g.from) / data.width), m = +$('metric').value || 0, metric = data.metrics[m];
  const lines = ['GPU ' + g.label + ' · ' + moment(t, view.to - view.from < 600)];
  if (i < 0 || i >= g.idle.length || g.idle[i] === 255) lines.push('not seen');
  else {
    if (metric) {
      const [low, high] = g.values[m], v = b => metric.top >= 1e6 ? (b / 250 * metric.top / 2 ** 30).toFixed(1) + ' Gi' + metric.unit : (metric.top >= 10 ? Math.round(b / 250 * metric.top) : (b / 250 * metric.top).toPrecision(2)) + ' ' + metric.unit;
      lines.push(metric.name + ' ' + (high[i] === 255 ? 'unknown' : low[i] === high[i] ? v(low[i]) : v(low[i]) + ' to ' + v(high[i])));
    }
    lines.push('idle in ' + Math.round(g.idle[i] / 2.5) + ' % of the samples');
  }
  const slack = 3 / (W - left) * (view.to - view.from);
  const mark = g.marks.find(k => t >= k[1] - slack && t <= k[1] + Math.max(k[2], slack));
  if (mark) lines.push('would have been ended ' + moment(mark[1]) + '; ' + became[mark[3]] + ' after ' + span(mark[2]));
  tip.textContent = lines.join('\n'); tip.style.display = 'block';
  tip.style.left = Math.min(e.clientX + 14, window.innerWidth - tip.offsetWidth - 8) + 'px'; tip.style.top = (e.clientY + 16) + 'px';
}

// ---- the policies: what each frees and loses over `for` (or the first axis)
const money = h => (h * r.price_per_hour).toLocaleString('en-US', {minimumFractionDigits: 2, maximumFractionDigits: 2});
const priced = r.price_per_hour !== undefined, axes = r.sweep ? data.axes : [];
const policyHeads = [...(axes.length ? axes.map(a => [a.name, '']) : [['rule', 'l']]), ['jobs ended', ''], ['worked again', ''], ['work lost', ''], ['GPU-hours freed', ''],
  ...(priced ? [['worth', '']] : []), ['not seen again', ''], ['followed (median)', ''], ['back within 1h', ''], ['back within 4h', ''], ['back within 24h', ''], ['', 'l']];
const policyCells = q => [...(axes.length ? axes.map(a => q[a.name]) : [[r.rule, 'wrap']]), count(q.ended) + ' of ' + count(q.jobs), [count(q.worked_again), q.worked_again ? 'regret' : ''],
  [lostText(q), lostClass(q, r)], [num(q.freed_hours), 'kept'], ...(priced ? [money(q.freed_hours)] : []), count(q.not_seen_again),
  q.follow_up_median_seconds === null ? '–' : span(q.follow_up_median_seconds), backText(q, 1), backText(q, 4), backText(q, 24), q.recommended ? '◄ recommended' : q.closest ? '◄ closest' : ''];
$('rows').className = 'many';
fillTable($('rows'), policyHeads, (r.sweep || [r.totals]).map(q => ({cls: q.recommended || q.closest ? 'knee' : '', cells: policyCells(q)})));
if (r.sweep) $('charts').append(...sweepCharts(r.sweep, data.axes));
if (r.hurt.some(h => h.worked_again)) {
  $('whom').hidden = false;
  fillTable($('hurt'), [['user', 'l'], ['command', 'l'], ['host', 'l'], ['ended', ''], ['worked again', ''], ['work lost h', '']],
    r.hurt.filter(h => h.worked_again).slice(0, 50).map(h => ({cells: [longOrNot(h.user || '?'), [h.command || '?', 'wrap'], short(h.host || '?'), count(h.ended), [count(h.worked_again), 'regret'], num(h.work_lost_hours)]})));
}
function tellScale() {
  const m = data.metrics[+$('metric').value || 0], rest = gpus.length - shownGpus;
  $('scale').textContent = m ? 'Scale: 0 to ' + (m.top >= 1e6 ? (m.top / 2 ** 30).toFixed(1) + ' Gi' : num(m.top) + ' ') + m.unit + ' (' + m.name + ': ' + m.meaning + ').' : '';
  $('more-gpus').hidden = rest <= 0;
  $('more-gpus').textContent = 'show ' + count(Math.min(rest, 100)) + ' more of the ' + count(gpus.length) + ' GPUs (those that wasted most come first)';
}
$('more-gpus').onclick = () => { shownGpus = Math.min(gpus.length, shownGpus + 100); draw(); tellScale(); };
$('metric').onchange = () => { draw(); tellScale(); };
const each = r.per === 'gpu';
fillTable($('gpus'), [['GPU', 'l'], ['seen h', ''], ...(each ? [['ended', ''], ['worked again', ''], ['freed h', '']] : [['samples', '']])],
  gpus.map(g => r.per_gpu[g.index]).filter(Boolean).slice(0, 2000).map(g => ({cells: [longOrNot(short(g.gpu)), num(g.seen_hours), ...(each ? [count(g.ended), [count(g.worked_again), g.worked_again ? 'regret' : ''], num(g.freed_hours)] : [count(g.samples)])]})));
const then = e => e.worked_again ? [became[0] + ' after ' + span(e.back_after_seconds), 'regret words'] : [(e.then === 'released' ? became[1] + ' after ' : became[2] + ', followed for ') + span(e.followed_seconds), (e.then === 'released' ? 'kept' : 'back') + ' words'];
$('ends').className = 'many';  // which stands beside another
fillTable($('ends'), [['GPU', 'l'], ['user', 'l'], ['ended at', 'l'], ['then', 'l'], ['work lost h', ''], ['freed h', '']],
  r.ends.map(e => ({cells: [longOrNot(short(e.gpu)), longOrNot(e.user || '?'), longOrNot(brief(e.at_seconds)), then(e), num(e.work_lost_hours), num(e.freed_hours)]})));
const all = (r.sweep || []).find(q => q.recommended || q.closest) || r.totals;
$('ends-rule').textContent = r.ends_rule;
$('more').textContent = all.ended > r.ends.length ? 'and ' + count(all.ended - r.ends.length) + ' more (lull replay --json has them all)' : all.ended ? '' : 'None.';
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', draw);
addEventListener('resize', draw);
draw();
tellScale();
