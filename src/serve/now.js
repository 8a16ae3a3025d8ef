// The page of lull-serve: what the GPUs do now, as the server tells it with every sample. All that comes from there is
// set as text. Cells change only where their text does.
'use strict';
const HEADS = [['GPU', 'l first'], ['utilisation, last hour', 'chart'], ['memory', ''], ['power', ''], ['user', 'l'], ['command', 'l wrap'],
  ['job', 'l job'], ['since', ''], ['idle for', ''], ['next', 'l next'], ['lease', 'l'], ['filler', 'l']];
const SVG = 'http://www.w3.org/2000/svg';
const shape = (tag, attributes) => { const e = document.createElementNS(SVG, tag); for (const k in attributes) e.setAttribute(k, attributes[k]); return e; };
const rows = new Map();
let hours = new Map(), lastHeard = Date.now(), every = 2, lost = false, shown = null;

const clock = date => pad(date.getHours()) + ':' + pad(date.getMinutes()) + ':' + pad(date.getSeconds());
const dayText = date => date.toLocaleDateString('en-GB', {day: 'numeric', month: 'short'});
const setText = (e, text) => { text = plain(text); if (e.textContent !== text) e.textContent = text; };
const setClass = (e, name) => { if (e.className !== name) e.className = name; };
const gib = n => n === null || n === undefined ? null : n / 2 ** 30;
const known = (n, digits) => n === null || n === undefined ? 'unknown' : n.toFixed(digits);
const ofText = (n, digits, all, unit) => known(n, digits) + (all === null || all === undefined ? n === null || n === undefined ? '' : ' ' + unit : ' of ' + all.toFixed(0) + ' ' + unit);
function since(text, now) {
  if (!text) return '';
  const date = new Date(text), minutes = Math.max(0, Math.floor((now - date) / 60000));
  return (now - date < 20 * 3600e3 ? clock(date).slice(0, 5) : dayText(date)) + ' (' + (minutes ? span(60 * minutes) : '<\u00a01m') + ')';
}
// The same lines in all cells of a row that tell of its processes.
function lines(cell, texts) {
  if (!texts.some(Boolean)) texts = [];
  while (cell.children.length > texts.length) cell.lastChild.remove();
  texts.forEach((text, i) => {
    const line = cell.children[i] || cell.appendChild(el('div'));
    setText(line, text);
    if (line.title !== plain(text)) line.title = plain(text);
  });
}

function state(text, cls) { setText($('state'), text); setClass($('state'), 'sub ' + cls); }

function makeRow() {
  const tr = el('tr');
  tr.setAttribute('role', 'row');
  const cells = HEADS.map(([label, cls]) => { const td = el('td', cls); td.dataset.label = label; td.setAttribute('role', 'cell'); tr.append(td); return td; });
  const row = {tr, cells, label: el('div'), use: el('span', 'use'), name: el('div', 'name'), trouble: el('div', 'trouble'), util: el('div'),
    hour: shape('svg', {class: 'hour', viewBox: '0 0 180 30', preserveAspectRatio: 'none', role: 'img'}), memory: el('div'), power: el('div')};
  row.label.append(el('b'), ' ', row.use);
  cells[0].append(row.label, row.name, row.trouble);
  cells[1].append(row.util, row.hour);
  for (const [cell, text, key] of [[cells[2], row.memory, 'memoryPart'], [cells[3], row.power, 'powerPart']]) {
    const part = el('div', 'part');
    row[key] = part.appendChild(el('i'));
    cell.append(text, part);
  }
  return row;
}

// The newest at the right edge; what was not seen stays hatched.
function drawHour(row, values) {
  const text = JSON.stringify(values);
  if (row.drawn === text) return;
  row.drawn = text;
  row.hour.replaceChildren();
  const all = Array(Math.max(0, 180 - values.length)).fill(null).concat(values.slice(-180)), y = v => 29 - v / 100 * 28;
  let seen = 0, sum = 0;
  for (let i = 0; i < all.length;) {
    let end = i;
    while (end < all.length && (all[end] === null) === (all[i] === null)) end++;
    if (all[i] !== null) {
      const points = all.slice(i, end).map((v, k) => { seen++; sum += v; return (i + k) + ' ' + y(v) + 'L' + (i + k + 1) + ' ' + y(v); }).join('L');
      row.hour.append(shape('rect', {class: 'seen', x: i, y: 0, width: end - i, height: 30}), shape('path', {class: 'area', d: 'M' + i + ' 30L' + points + 'L' + end + ' 30Z'}), shape('path', {class: 'line', d: 'M' + points}));
    }
    i = end;
  }
  const told = seen ? 'last hour: mean ' + Math.round(sum / seen) + ' %, seen for ' + span(seen * 20) : 'last hour: not seen';
  row.hour.setAttribute('aria-label', told);
  row.hour.append(shape('title', {}));
  row.hour.lastChild.textContent = told;
}

function users(gpu, jobs) {
  const found = new Map();
  for (const p of gpu.processes || []) {
    if (p.mps_server) continue;
    const job = (jobs.get(p.pid) || {}).job || '', key = JSON.stringify([p.user, p.command, job, p.filler]);
    const one = found.get(key) || {user: p.user || '?', command: p.command || '(pid ' + p.pid + ')', job, filler: p.filler, started: p.started, count: 0, proof: p.proof};
    one.count++;
    if (p.started && (!one.started || p.started < one.started)) one.started = p.started;
    found.set(key, one);
  }
  return [...found.values()];
}

// What lull does next to the jobs on a GPU, when, and until when they are kept. In whole minutes: a countdown that is
// spoken or that moves each second tells no more.
const within = seconds => seconds < 60 ? 'in less than a minute' : 'in ' + span(60 * Math.ceil(seconds / 60));
function nextText(job, now) {
  if (!job.watched) return '';
  const kept = job.kept_until && new Date(job.kept_until) > now ? 'kept until ' + clock(new Date(job.kept_until)).slice(0, 5) +
    (new Date(job.kept_until) - now > 20 * 3600e3 ? ' on ' + dayText(new Date(job.kept_until)) : '') : '';
  const next = job.next_action ? (job.dry_run ? 'would ' : '') + job.next_action +
    (job.next_in_seconds === null ? '' : job.next_in_seconds === 0 ? ' now' : ' ' + within(job.next_in_seconds)) : '';
  return [kept, next].filter(Boolean).join('; ') || 'watched';
}

// One button for each job; it stays where it is while what it says changes.
function fillNext(cell, jobs, now, keep) {
  while (cell.children.length > jobs.length) cell.lastChild.remove();
  jobs.forEach((job, i) => {
    const line = cell.children[i] || cell.appendChild(el('div'));
    if (!line.firstChild) line.append(el('span'), ' ');
    setText(line.firstChild, nextText(job, now));
    let button = line.querySelector('button');
    const wanted = keep && job.watched && job.job;
    if (!wanted && button) button.remove();
    if (wanted && !button) {
      button = line.appendChild(el('button', 'keep', 'keep'));
      button.type = 'button';
      button.addEventListener('click', () => askKeep(button));
    }
    if (!wanted) return;
    if (button.dataset.job !== job.job) {
      button.dataset.job = job.job;
      button.setAttribute('aria-label', plain('keep ' + job.job + ' for a while'));
    }
  });
}

function askKeep(button) {
  setText($('keep-job'), button.dataset.job);
  setText($('keep-answer'), '');
  $('keep').dataset.job = button.dataset.job;
  $('keep').showModal();
}

async function sendKeep(event) {
  event.preventDefault();
  setText($('keep-answer'), 'asking …');
  try {
    const answer = await fetch('/api/keep', {method: 'POST', headers: {'Content-Type': 'application/json'},
      body: JSON.stringify({target: $('keep').dataset.job, seconds: Number($('keep-time').value)})});
    const type = answer.headers.get('Content-Type') || '', said = type.includes('json') ? await answer.json() : {error: await answer.text()};
    setText($('keep-answer'), said.error || said.answers.join('; '));
    setClass($('keep-answer'), said.kept ? 'good' : 'bad');
  } catch {
    setText($('keep-answer'), 'the server does not answer');
    setClass($('keep-answer'), 'bad');
  }
}

function fillQueue(queue, now) {
  const none = !queue || !queue.length;
  if ($('queue').hidden !== none) $('queue').hidden = none;
  if (none) return;
  const body = $('waiting').tBodies[0];
  while (body.children.length > queue.length) body.lastChild.remove();
  queue.forEach((one, i) => {
    const tr = body.children[i] || body.appendChild(el('tr'));
    while (tr.children.length < 5) {
      const td = el('td', tr.children.length < 2 || tr.children.length === 4 ? 'l' : '');
      td.dataset.label = ['place', 'user', 'GPUs', 'since', 'command'][tr.children.length];
      tr.append(td);
    }
    [String(i + 1), one.user, one.count + (one.share > 1 ? ' shared' : ''), since(one.since, now), one.command || ''].forEach((text, k) => setText(tr.children[k], text));
  });
}

// In whole seconds. "At least 0 s" tells nothing.
function idleText(gpu) {
  const seconds = Math.floor(gpu.idle_seconds);
  if (gpu.idle_seconds === null || (gpu.idle_at_least && seconds < 1)) return [];
  return [(gpu.idle_at_least ? '≥ ' : '') + (seconds < 1 ? '0s' : span(seconds))];
}

// What tells all GPUs alike is said once, and a column of which no row has anything is not there.
function fillShared(gpus) {
  const alike = gpus.length > 1 && gpus[0].name && gpus.every(g => g.name === gpus[0].name);
  setText($('model'), alike ? 'all ' + gpus[0].name : '');
  for (const row of rows.values()) if (row.name.hidden !== Boolean(alike)) row.name.hidden = Boolean(alike);
  for (const column of [6, 9, 10, 11]) {
    const empty = [...rows.values()].every(row => !row.cells[column].textContent.trim());
    for (const cell of [$('gpus').tHead.rows[0].cells[column], ...[...rows.values()].map(row => row.cells[column])])
      if (cell.hidden !== empty) cell.hidden = empty;
  }
}

function fillRow(row, gpu, use, jobs, now, keep) {
  const label = gpu.kind === 'mig' ? gpu.index + ':' + gpu.mig_index : String(gpu.index);
  setText(row.label.firstChild, label);
  setText(row.use, use);
  setClass(row.use, 'use ' + use.split(' ')[0]);
  setText(row.name, gpu.name || '');
  setText(row.trouble, gpu.error || '');
  setText(row.util, gpu.util_percent === null ? 'unknown' : Math.round(gpu.util_percent) + ' %');
  const used = gib(gpu.mem_used_bytes), total = gib(gpu.mem_total_bytes);
  setText(row.memory, ofText(used, 1, total, 'GiB'));
  setText(row.power, ofText(gpu.power_watts, 0, gpu.power_limit_watts, 'W'));
  row.memoryPart.style.width = (used !== null && total ? Math.min(100, 100 * used / total) : 0) + '%';
  row.powerPart.style.width = (gpu.power_watts !== null && gpu.power_limit_watts ? Math.min(100, 100 * gpu.power_watts / gpu.power_limit_watts) : 0) + '%';
  const all = users(gpu, jobs), some = all.slice(0, 4), more = all.length > 4 ? ['and ' + (all.length - 4) + ' more'] : [];
  lines(row.cells[4], gpu.processes === null ? ['unknown'] : some.map(u => u.user + (u.count > 1 ? ' × ' + u.count : '')).concat(more));
  lines(row.cells[5], some.map(u => u.command + (u.proof === 'proven' ? '' : ' (' + u.proof + ')')));
  lines(row.cells[6], some.map(u => u.job.startsWith('tree:') ? '' : u.job));  // which has no name but a pid
  lines(row.cells[7], some.map(u => since(u.started, now)));
  lines(row.cells[8], idleText(gpu));
  const here = [...new Set((gpu.processes || []).map(p => jobs.get(p.pid)).concat(jobs.get('gpu ' + label) || []))].filter(j => j && j.watched);
  fillNext(row.cells[9], here.slice(0, 4), now, keep);
  lines(row.cells[10], gpu.leases.map(l => l.user + (l.since ? ', ' + since(l.since, now) : '')));
  lines(row.cells[11], some.map(u => u.filler ? 'filler' : ''));
  row.words = [label, gpu.uuid, gpu.name, use, ...all.flatMap(u => [u.user, u.command, u.job]), ...gpu.leases.map(l => l.user)].join(' ').toLowerCase();
  drawHour(row, hours.get(label) || []);
}

function show(event) {
  shown = event;
  every = event.every_seconds;
  setText($('host'), event.host);
  if (!event.up) {
    setText($('summary'), 'The GPUs cannot be read');
    setText($('note'), event.error);
    $('gpus').hidden = true;
    state('no sample', 'bad');
    return;
  }
  const now = new Date(event.status.time), jobs = new Map(), body = $('gpus').tBodies[0], there = new Set();
  for (const job of event.jobs) {
    for (const pid of job.pids) jobs.set(pid, job);
    // A job may have a GPU and no process on it.
    for (const gpu of job.gpus) jobs.set('gpu ' + gpu.gpu, (jobs.get('gpu ' + gpu.gpu) || []).concat(job));
  }
  $('gpus').hidden = false;
  setText($('summary'), event.summary);
  document.title = plain(event.summary + (event.host ? ' · ' + event.host : ''));
  event.status.gpus.forEach((gpu, i) => {
    const key = gpu.pci + ' ' + gpu.index + ':' + gpu.mig_index + ' ' + gpu.uuid;
    there.add(key);
    if (!rows.has(key)) rows.set(key, makeRow());
    const row = rows.get(key);
    fillRow(row, gpu, event.uses[i], jobs, now, event.keep);
    if (body.children[i] !== row.tr) body.insertBefore(row.tr, body.children[i] || null);
  });
  for (const [key, row] of rows) if (!there.has(key)) { row.tr.remove(); rows.delete(key); }
  fillShared(event.status.gpus);
  fillQueue(event.queue, now);
  filter();
  setText($('host'), event.host + ' · ' + clock(now));
  state('live', 'good');  // is spoken when it changes
}

function filter() {
  const words = $('filter').value.toLowerCase().split(/\s+/).filter(Boolean);
  let hidden = 0;
  for (const row of rows.values()) {
    const out = !words.every(w => row.words.includes(w));
    if (row.tr.hidden !== out) row.tr.hidden = out;
    hidden += out;
  }
  setText($('note'), hidden ? 'The filter hides ' + hidden + ' of ' + rows.size + ' GPUs.' : rows.size ? '' : 'There is no GPU.');
}

async function readHours() {
  try {
    const answer = await fetch('/api/recent');
    if (!answer.ok) return;
    hours = new Map((await answer.json()).gpus.map(g => [g.gpu, g.util_percent]));
    if (shown && shown.up && !lost) show(shown);
  } catch { /* the stream says when the server is gone */ }
}

function gone() {
  if (lost) return;
  lost = true;
  document.body.classList.add('gone');
  state('the server does not answer; this is from ' + clock(new Date(lastHeard)), 'bad');
}

function listen() {
  const source = new EventSource('/api/events');
  source.addEventListener('now', message => {
    lastHeard = Date.now();
    lost = false;
    document.body.classList.remove('gone');
    show(JSON.parse(message.data));
  });
  source.onerror = () => {
    gone();
    if (source.readyState === EventSource.CLOSED) setTimeout(listen, 5000);
  };
}

const head = el('tr');
head.setAttribute('role', 'row');
for (const [text, cls] of HEADS) { const th = el('th', cls.includes('l') ? 'l' : '', text); th.scope = 'col'; th.setAttribute('role', 'columnheader'); head.append(th); }
$('gpus').tHead.append(head);
$('filter').addEventListener('input', filter);
$('keep').querySelector('form').addEventListener('submit', sendKeep);
$('keep-close').addEventListener('click', () => $('keep').close());
setInterval(() => { if (Date.now() - lastHeard > Math.max(5, 6 * every) * 1000) gone(); }, 1000);
setInterval(readHours, 20000);
readHours();
listen();
