// The History view: how the last 30 days were used, hour by hour and by whom. All names are set as text.
'use strict';
{
  const PARTS = [['busy', 'busy', 'busy_hours'], ['idle', 'held idle', 'idle_hours'], ['hung', 'hung', 'hung_hours'],
    ['unjudged', 'busy or hung', 'not_judged_hours'], ['free', 'free', 'free_hours'], ['unseen', 'not known', 'unknown_hours']];
  const canvas = $('heat'), ctx = canvas.getContext('2d'), painted = document.createElement('canvas');
  const AXIS = 22, SHADE = ['busy', 'kept', 'back', 'knee', 'regret', 'dim'];
  let shown = null, first = null, mode = 'use', cursor = null, left = 40, rowHeight = 20, read = 0, reading = false;
  let colourOf = [];  // of each person: which shade; -1: the others

  const parts = of => PARTS.map(([cls, text, field]) => [cls, text, of[field] || 0]).filter(([, , hours]) => hours > 0);
  // Widths are set from here: the page allows no style in its markup.
  function bar(box, of, all) {
    for (const [cls, , hours] of parts(of)) { const part = el('i', cls); part.style.flexGrow = hours; box.append(part); }
    const rest = all ? all - parts(of).reduce((sum, [, , hours]) => sum + hours, 0) : 0;
    if (rest > 0) { const gap = el('i', 'gap'); gap.style.flexGrow = rest; box.append(gap); }
    return box;
  }

  function state(text, bad) {
    if (shown) return;  // what is there stays
    setText($('history-basis'), text);
    $('history-basis').classList.toggle('regret', Boolean(bad));
  }

  function showAll(body) {
    const report = body.report, totals = report.totals, all = totals.gpu_hours;
    shown = body;
    oneHost(report);
    first = new Date(report.by_hour ? report.by_hour.first : report.from);
    $('history-shown').hidden = false;
    $('history-basis').classList.remove('regret');
    const words = parts(totals).map(([, text, hours]) => shareText(hours / all) + ' ' + text);
    setText($('history-answer'), all > 0 ? 'The last 30 days: ' + words.slice(0, -1).join(', ') + (words.length > 1 ? ' and ' : '') + words[words.length - 1]
      : 'Nothing was seen for long enough to tell how the GPUs were used');
    setText($('history-basis'), report.gpus + (report.gpus === 1 ? ' GPU' : ' GPUs') + ', ' + hoursText(all) + ' GPU-hours seen from ' + dateTime(new Date(report.from)) + ' to ' +
      dateTime(new Date(report.to)) + (report.gap_hours > .05 ? '; ' + hoursText(report.gap_hours) + ' not seen' : '') + '. Idle is ' + report.idle_rule + '. Read ' + dateTime(new Date(body.time)) + '.');
    $('use-bar').replaceChildren();
    bar($('use-bar'), totals);
    $('use-parts').replaceChildren(...parts(totals).map(([cls, text, hours]) => {
      const box = el('div'), name = el('dt');
      name.append(el('i', cls), text);
      box.append(name, el('dd', '', hoursText(hours) + ' h'), el('dd', 'dim', shareText(hours / all)));
      return box;
    }));
    showPeople(report);
    showStretches(report);
    nameColours(report.by_hour);
    showTable(report.by_hour);
    draw();
  }

  // Where all are of one host its name tells none from another: 3, not node1/3.
  function oneHost(report) {
    const host = report.by_hour.gpus.length ? report.by_hour.gpus[0].host : null;
    if (!host || !report.by_hour.gpus.every(g => g.host === host)) return;
    for (const one of [...report.by_hour.gpus, ...report.longest_idle]) if (one.gpu.startsWith(host + '/')) one.gpu = one.gpu.slice(host.length + 1);
  }

  function showPeople(report) {
    const most = Math.max(...report.by_user.map(u => u.gpu_hours), 1e-9);
    fillTable($('people'), [['user', 'l'], ['', 'l grow'], ['busy h', ''], ['held idle h', ''], ['in stretches over 1h', ''], ['free h', '']],
      report.by_user.slice(0, 200).map(u => ({cls: u.nobody ? 'nobody' : '', cells: [
        [u.nobody ? 'nobody' : u.user || 'not told', 'wrap'], bar(el('div', 'shares'), u, most), u.nobody ? '' : hoursText(u.busy_hours + u.not_judged_hours),
        [u.nobody ? '' : hoursText(u.idle_hours), u.idle_hours > 0 ? 'back' : ''], u.nobody ? '' : hoursText(u.idle_over_1h_hours), u.nobody ? hoursText(u.free_hours) : '']})));
  }

  function showStretches(report) {
    const all = report.longest_idle.slice(0, 20), most = all.length ? all[0].seconds : 1;
    fillTable($('stretches'), [['user', 'l'], ['GPU', 'l'], ['held idle for', 'l grow'], ['from', 'l']],
      all.map(one => {
        const length = el('div', 'length'), line = el('i');
        line.style.width = Math.max(2, 100 * one.seconds / most) + '%';
        length.append(el('span', '', longSpan(one.seconds) + (one.until_the_end ? ', still' : '')), line);
        const who = el('div'), what = [one.command, one.job].filter(Boolean).join(' · ');
        who.append(el('div', '', one.user || 'not told'));
        if (what) { const line = el('div', 'what', what); line.title = plain(what); who.append(line); }
        return {cells: [[who, 'wrap'], one.gpu, length, dateTime(new Date(one.from))]};
      }));
    setText($('stretches-note'), all.length ? '' : 'Nobody held a GPU idle for long enough to count.');
  }

  // The people who had the most hours have a colour of their own, the rest share one.
  function nameColours(by) {
    const hours = new Map();
    for (const gpu of by.gpus) gpu.person.forEach(p => { if (p !== null) hours.set(p, (hours.get(p) || 0) + 1); });
    colourOf = by.people.map(() => -1);
    [...hours].sort((a, b) => b[1] - a[1]).slice(0, SHADE.length - 1).forEach(([p], i) => { colourOf[p] = i; });
    legend(by);
  }
  function legend(by) {
    const items = mode === 'use' ? [['busy', 'busy'], ['idle', 'held idle'], ...(by.gpus.some(g => g.hung_percent.some(v => v > 0)) ? [['hung', 'hung']] : []), ['free', 'free'], ['unseen', 'not seen']]
      : [...by.people.map((name, p) => ['s' + colourOf[p], name, colourOf[p]]).filter(([, , shade]) => shade >= 0).sort((a, b) => a[2] - b[2]),
        ...(colourOf.includes(-1) ? [['s5', 'others']] : []), ['pale', 'pale: held idle'], ['free', 'nobody'], ['unseen', 'not seen']];
    $('heat-legend').replaceChildren(...items.map(([cls, text]) => { const e = el('span'), name = el('bdi', '', text.length > 24 ? text.slice(0, 23) + '…' : text); e.append(el('i', cls), name); return e; }));
  }

  // Of the hours from `from` to `to` of a GPU: shares that add up to 1, and who had it longest.
  function together(gpu, from, to) {
    const sum = {busy: 0, idle: 0, hung: 0, free: 0, unseen: 0}, people = new Map();
    for (let i = from; i < to; i++) {
      if (gpu.busy_percent[i] === null || gpu.busy_percent[i] === undefined) { sum.unseen += 100; continue; }
      sum.busy += gpu.busy_percent[i]; sum.idle += gpu.idle_percent[i]; sum.hung += gpu.hung_percent[i]; sum.free += gpu.free_percent[i];
      sum.unseen += Math.max(0, 100 - gpu.busy_percent[i] - gpu.idle_percent[i] - gpu.hung_percent[i] - gpu.free_percent[i]);
      if (gpu.person[i] !== null) people.set(gpu.person[i], (people.get(gpu.person[i]) || 0) + 1);
    }
    const all = Object.values(sum).reduce((a, b) => a + b, 0) || 1;
    for (const k in sum) sum[k] /= all;
    sum.person = people.size ? [...people].sort((a, b) => b[1] - a[1])[0][0] : null;
    return sum;
  }

  const rows = () => shown.report.by_hour.gpus, columns = () => shown.report.by_hour.hours;
  const edge = i => left + Math.round(i * (canvas.clientWidth - left) / columns());

  function paintCell(sum, x, y, width, height, paint) {
    ctx.fillStyle = paint.none;
    const seen = 1 - sum.unseen;
    if (seen < .02) { ctx.fillStyle = paint.stripes; ctx.fillRect(x, y, width, height); return; }
    ctx.fillRect(x, y, width, height);
    const [use, share] = ['busy', 'idle', 'hung', 'free'].map(k => [k, sum[k]]).sort((a, b) => b[1] - a[1])[0];
    if (mode === 'person') {
      if (sum.person === null) return;
      ctx.fillStyle = paint[SHADE[colourOf[sum.person] < 0 ? 5 : colourOf[sum.person]]];
      ctx.globalAlpha = .25 + .75 * Math.min(1, (sum.busy + sum.hung) / Math.max(.01, sum.busy + sum.hung + sum.idle));
    } else {
      if (use === 'free') return;
      ctx.fillStyle = paint[{busy: 'busy', idle: 'back', hung: 'regret'}[use]];
      ctx.globalAlpha = (use === 'idle' ? .85 : 1) * (.3 + .7 * share);
    }
    ctx.fillRect(x, y, width, height);
    ctx.globalAlpha = 1;
  }

  function draw() {
    if (!shown || !columns() || $('view-history').hidden || !canvas.clientWidth) return;
    const ratio = window.devicePixelRatio || 1, W = canvas.clientWidth, n = rows().length;
    rowHeight = n <= 8 ? 28 : n <= 16 ? 22 : n <= 40 ? 15 : 11;
    const H = AXIS + n * rowHeight, paint = Object.fromEntries(['none', 'hatch', 'dim', 'line', 'ink', 'card', ...SHADE].map(name => [name, css(name)]));
    canvas.style.height = H + 'px';
    canvas.width = W * ratio; canvas.height = H * ratio;
    ctx.setTransform(ratio, 0, 0, ratio, 0, 0);
    paint.stripes = stripes(ctx, paint.none, paint.hatch);
    ctx.font = Math.min(12, rowHeight - 1) + 'px system-ui, sans-serif';
    left = Math.ceil(Math.min(W / 3, 12 + Math.max(...rows().map(g => ctx.measureText(g.gpu).width), 10)));
    const gap = rowHeight > 12 ? 2 : 1;
    rows().forEach((gpu, r) => {
      const y = r * rowHeight;
      ctx.textBaseline = 'middle'; ctx.textAlign = 'right'; ctx.fillStyle = paint.dim;
      ctx.fillText(fitText(ctx, gpu.gpu, left - 8), left - 8, y + rowHeight / 2);
      for (let i = 0; i < columns();) {
        let end = i + 1;
        while (end < columns() && edge(end) <= edge(i)) end++;  // several hours a pixel
        paintCell(together(gpu, i, end), edge(i), y, Math.max(1, edge(end) - edge(i)), rowHeight - gap, paint);
        i = end;
      }
    });
    drawDays(paint, H);
    painted.width = canvas.width; painted.height = canvas.height;
    painted.getContext('2d').drawImage(canvas, 0, 0);
    drawCursor();
    canvas.setAttribute('aria-label', n + (n === 1 ? ' GPU' : ' GPUs') + ', ' + columns() + ' hours from ' + dateTime(first) + '. The arrow keys go from hour to hour, with Control from day to day.');
  }

  // The map stays as it was painted: thousands of cells are not painted anew with each step of the pointer.
  function drawCursor() {
    if (!cursor || !painted.width) return;
    const ratio = window.devicePixelRatio || 1;
    ctx.setTransform(1, 0, 0, 1, 0, 0);
    ctx.clearRect(0, 0, canvas.width, canvas.height);
    ctx.drawImage(painted, 0, 0);
    ctx.setTransform(ratio, 0, 0, ratio, 0, 0);
    ctx.strokeStyle = css('ink'); ctx.lineWidth = 1.5;
    ctx.strokeRect(edge(cursor.hour) - 1, cursor.row * rowHeight - .5, Math.max(3, edge(cursor.hour + 1) - edge(cursor.hour) + 1.5), rowHeight);
  }

  const hourDate = i => new Date(first.getTime() + i * 3600e3);
  function drawDays(paint, H) {
    const perDay = 24 * (canvas.clientWidth - left) / columns(), days = [];
    for (let i = 0; i < columns(); i++) if (hourDate(i).getHours() === 0) days.push(i);
    const label = i => hourDate(i).toLocaleDateString('en-GB', {day: 'numeric', month: 'short'});
    ctx.font = '11px system-ui, sans-serif';
    const step = Math.max(1, Math.ceil((ctx.measureText('30 Sep').width + 14) / perDay));
    ctx.textBaseline = 'alphabetic'; ctx.textAlign = 'left';
    let room = canvas.clientWidth;  // to the left of the label behind
    days.reverse().forEach((i, k) => {  // the newest day is always named
      const x = edge(i);
      ctx.fillStyle = paint.card;
      if (perDay >= 12) ctx.fillRect(x, 0, 1, H - AXIS);
      const text = label(i), width = ctx.measureText(text).width, at = Math.min(x, canvas.clientWidth - width);
      if (k % step || at + width > room) return;
      room = at - 10;
      ctx.fillStyle = paint.line; ctx.fillRect(x, H - AXIS, 1, 5);
      ctx.fillStyle = paint.dim;
      ctx.fillText(text, at, H - 6);
    });
  }

  function tell() {
    if (!cursor) return setText($('heat-cell'), 'Point at an hour, or use the arrow keys.');
    const gpu = rows()[cursor.row], sum = together(gpu, cursor.hour, cursor.hour + 1), from = hourDate(cursor.hour);
    const words = [['busy', 'busy'], ['idle', 'held idle'], ['hung', 'hung'], ['free', 'free'], ['unseen', 'not seen']].filter(([k]) => sum[k] >= .005)
      .map(([k, text]) => Math.round(100 * sum[k]) + ' % ' + text);
    setText($('heat-cell'), 'GPU ' + gpu.gpu + ' · ' + dateTime(from) + '–' + pad(hourDate(cursor.hour + 1).getHours()) + ':' + pad(from.getMinutes()) + ' · ' + words.join(', ') +
      (sum.person === null ? '' : ' · ' + shown.report.by_hour.people[sum.person]));
  }
  function move(row, hour) {
    if (!columns()) return;
    const next = {row: Math.max(0, Math.min(rows().length - 1, row)), hour: Math.max(0, Math.min(columns() - 1, hour))};
    if (cursor && cursor.row === next.row && cursor.hour === next.hour) return;
    cursor = next;
    drawCursor();
    tell();
  }

  function showTable(by) {
    const sum = values => values.reduce((a, b) => a + (b || 0), 0) / 100;
    fillTable($('heat-table'), [['GPU', 'l'], ['busy h', ''], ['held idle h', ''], ['hung h', ''], ['free h', ''], ['hours seen', ''], ['most by', 'l']],
      by.gpus.map(g => {
        const seen = g.busy_percent.filter(v => v !== null).length, who = together(g, 0, by.hours).person;
        return {cells: [g.gpu, hoursText(sum(g.busy_percent)), hoursText(sum(g.idle_percent)), hoursText(sum(g.hung_percent)), hoursText(sum(g.free_percent)), count(seen),
          [who === null ? '' : by.people[who], 'wrap']]};
      }));
  }

  canvas.addEventListener('pointermove', e => {
    if (!shown) return;
    const box = canvas.getBoundingClientRect(), x = e.clientX - box.left, y = e.clientY - box.top;
    if (x < left || y >= rows().length * rowHeight) return;
    move(Math.floor(y / rowHeight), Math.floor((x - left) / (canvas.clientWidth - left) * columns()));
  });
  canvas.addEventListener('keydown', e => {
    const by = {ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0]}[e.key];
    if (!by || !shown || e.altKey || e.metaKey) return;
    e.preventDefault();
    if (!cursor) return move(0, columns() - 1);
    move(cursor.row + by[0], cursor.hour + by[1] * (e.ctrlKey ? 24 : 1));
  });
  canvas.addEventListener('focus', () => { if (shown && !cursor) move(0, columns() - 1); });
  for (const one of document.querySelectorAll('input[name=heat]'))
    one.addEventListener('change', () => { mode = one.value; if (shown) { legend(shown.report.by_hour); draw(); } });
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', draw);
  addEventListener('resize', draw);

  views.history = {
    async show() {
      draw();
      // Again after some minutes; the server decides when it reads anew.
      if (reading || Date.now() - read < 120000) return;
      reading = true;
      await readMade('/api/history', state, body => { read = Date.now(); showAll(body); tell(); });
      reading = false;
    },
    showAll,
  };
  setInterval(() => { if (!$('view-history').hidden) views.history.show(); }, 60000);
}
