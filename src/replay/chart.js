// What the pages of replay and serve share: charts and tables of policies. Colours come from classes, since a page of
// serve may set no style in markup.
'use strict';
const svg = (tag, attrs, text) => { const e = document.createElementNS('http://www.w3.org/2000/svg', tag); for (const k in attrs) e.setAttribute(k, attrs[k]); if (text !== undefined) e.textContent = text; return e; };
const SHADES = 6;  // .s0 to .s5
// A round step of which at most five reach the top.
function roundStep(top) { const p = 10 ** Math.floor(Math.log10(top / 5)); return [1, 2, 5, 10].map(k => k * p).find(v => v * 5 >= top * .999); }
// What each policy of a sweep comes to over one axis, a line for each combination of the rest. `pick`: a policy that is clicked on.
function chart(title, axes, rows, axis, value, format, {range, pick, chosen} = {}) {
  const narrow = window.innerWidth < 640, box = el('div', 'chart'), W = narrow ? 340 : 640, H = narrow ? 220 : 280, b = 48, t = 12, right = 16;
  const main = axes[axis], rest = axes.filter((_, i) => i !== axis), lines = new Map();
  rows.forEach(q => { const key = rest.map(a => a.name + ' ' + q[a.name]).join(', '); if (!lines.has(key)) lines.set(key, []); lines.get(key).push(q); });
  const most = Math.max(...rows.map(value), ...(range ? rows.map(q => (range(q) || [0, 0])[1]) : [])) || 1, step = roundStep(most), top = step * Math.ceil(most / step * .999), n = main.values.length;
  const l = Math.max(narrow ? 46 : 58, 14 + 7 * format(top, top).length);
  const px = i => n === 1 ? (l + W - right) / 2 : l + 18 + i * (W - l - right - 36) / (n - 1), py = v => H - b - v / top * (H - b - t);
  const s = svg('svg', {viewBox: `0 0 ${W} ${H}`, role: 'img', 'aria-label': title});
  const at = q => px(main.values.indexOf(q[main.name]));
  if (chosen) s.append(svg('rect', {class: 'chosen', x: at(chosen) - 15, y: t, width: 30, height: H - b - t}));
  for (let k = 0; k * step <= top * 1.001; k++) {
    const y = py(k * step);
    s.append(svg('line', {class: 'grid', x1: l, x2: W - right, y1: y, y2: y}), svg('text', {x: l - 8, y: y + 4, 'text-anchor': 'end'}, format(k * step, top)));
  }
  main.values.forEach((v, i) => s.append(svg('text', {x: px(i), y: H - b + 19, 'text-anchor': 'middle'}, v)));
  s.append(svg('text', {x: (l + W - right) / 2, y: H - 6, 'text-anchor': 'middle'}, main.name === 'for' ? 'ended after' : main.name));
  let c = 0;
  for (const [, points] of lines) {
    const shade = 's' + c++ % SHADES;
    s.append(svg('polyline', {class: shade, points: points.map(q => at(q) + ',' + py(value(q))).join(' ')}));
    for (const q of points) {
      const dot = svg('circle', {class: shade, cx: at(q), cy: py(value(q)), r: 4});
      if (range && range(q)) s.append(svg('line', {class: 'interval', x1: at(q), x2: at(q), y1: py(range(q)[0]), y2: py(range(q)[1])}));
      dot.append(svg('title', {}, q.rule + ': ' + format(value(q), 0))); s.append(dot);
      if (q.recommended) s.append(svg('circle', {class: 'recommended', cx: at(q), cy: py(value(q)), r: 9}));
    }
  }
  // A whole column is easier to hit than a dot.
  if (pick && !rest.length) main.values.forEach((v, i) => {
    const q = rows.find(one => one[main.name] === v), width = n > 1 ? px(1) - px(0) : W - l - right;
    if (!q) return;
    const hit = svg('rect', {class: 'hit', x: px(i) - width / 2, y: 0, width, height: H});
    hit.addEventListener('click', () => pick(q));
    s.append(hit);
  });
  box.append(el('h3', '', title), s);
  if (rest.length) {
    const legend = el('div', 'legend'); c = 0;
    for (const [key] of lines) { const e = el('span'); e.append(el('i', 's' + c++ % SHADES), key); legend.append(e); }
    box.append(legend);
  }
  return box;
}
function fillTable(table, heads, rows) {
  const tr = el('tr'); heads.forEach(([text, cls]) => { const th = el('th', cls, text); th.scope = 'col'; tr.append(th); }); const head = el('thead'); head.append(tr);
  const body = el('tbody');
  for (const {cells, cls} of rows) {
    const line = el('tr', cls);
    cells.forEach((c, i) => {
      const [content, k] = Array.isArray(c) ? c : [c, ''], cell = el('td', [heads[i][1], k].filter(Boolean).join(' '));
      cell.append(content instanceof Node ? content : plain(content === undefined || content === null ? '' : content));
      cell.dataset.label = heads[i][0];
      line.append(cell);
    });
    body.append(line);
  }
  table.replaceChildren(head, body);
}
// A striped ground for what was not seen: it must look neither idle nor busy, in light or in dark.
function stripes(ctx, ground, line) {
  const tile = document.createElement('canvas'); tile.width = tile.height = 8;
  const t = tile.getContext('2d'); t.fillStyle = ground; t.fillRect(0, 0, 8, 8);
  t.strokeStyle = line; t.lineWidth = 1.5; t.beginPath();
  for (const d of [-8, 0, 8]) { t.moveTo(d, 8); t.lineTo(d + 8, 0); }
  t.stroke();
  return ctx.createPattern(tile, 'repeat');
}
// Cut in the middle: names differ at their ends.
function fitText(ctx, text, width) {
  text = plain(text);
  if (ctx.measureText(text).width <= width) return text;
  let keep = text.length - 1;
  const cut = () => text.slice(0, Math.ceil(keep / 2)) + '…' + text.slice(text.length - Math.floor(keep / 2));
  while (keep > 1 && ctx.measureText(cut()).width > width) keep--;
  return cut();
}
const shareText = n => n === null || n === undefined ? '–' : n > 0 && n < .001 ? '< 0.1 %' : (100 * n).toFixed(n < .1 ? 1 : 0) + ' %';
const lostText = q => shareText(q.work_lost_ratio).replace(' ', '\u00a0') + (q.work_lost_low === null || q.work_lost_low === q.work_lost_high ? '' : ' (' + (Math.floor(1000 * q.work_lost_low) / 10).toFixed(1) + '\u2060–\u2060' + (Math.max(0, Math.ceil(1000 * q.work_lost_high - 1e-9)) / 10).toFixed(1) + '\u00a0%)');
const lostClass = (q, r) => q.work_lost_high > r.lose_ratio ? 'words regret' : 'words';
const backText = (q, h) => q[`return_${h}h_ratio`] === null ? '–' : Math.round(100 * q[`return_${h}h_ratio`]) + '\u00a0% (' + Math.floor(100 * q[`return_${h}h_low`]) + '\u2060–\u2060' + Math.ceil(100 * q[`return_${h}h_high`]) + '\u00a0%)';
const lostRange = q => q.work_lost_high === null ? null : [100 * q.work_lost_low, 100 * q.work_lost_high];
const LOST_TITLE = 'work lost, % (the line ends at the upper end of the interval)';
// Both charts of a sweep.
function sweepCharts(sweep, axes, how) {
  const axis = Math.max(0, axes.findIndex(a => a.name === 'for')), top = Math.max(...sweep.map(q => q.freed_hours));
  const digits = top >= 40 ? 0 : top >= 4 ? 1 : top >= .4 ? 2 : 4;
  return [chart('GPU-hours freed', axes, sweep, axis, q => q.freed_hours, v => count(+v.toFixed(digits)), how),
    chart(LOST_TITLE, axes, sweep, axis, q => 100 * (q.work_lost_ratio || 0), v => count(+v.toFixed(2)), {...how, range: lostRange})];
}
