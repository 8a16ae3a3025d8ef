// The Policy view: what ending idle jobs after each of some times would have done to the recorded days. Whoever decides
// chooses one here, and sees what it frees, what it costs, and the command for it.
'use strict';
{
  let shown = null, chosen = null, read = 0, reading = false;

  function state(text, bad) {
    if (shown) return;
    setText($('policy-basis'), text);
    $('policy-basis').classList.toggle('regret', Boolean(bad));
  }

  const heads = [['ended after', ''], ['jobs ended', ''], ['worked again', ''], ['work lost', ''], ['GPU-hours freed', ''], ['not seen again', ''],
    ['followed (median)', ''], ['back within 1h', ''], ['back within 4h', ''], ['back within 24h', '']];
  const cells = q => [q.for + (q.recommended ? ' ◄ recommended' : q.closest ? ' ◄ closest' : ''), count(q.ended) + ' of ' + count(q.jobs), [count(q.worked_again), q.worked_again ? 'regret' : ''],
    [lostText(q), lostClass(q, shown.replay)], [num(q.freed_hours), 'kept'], count(q.not_seen_again), q.follow_up_median_seconds === null ? '–' : span(q.follow_up_median_seconds),
    backText(q, 1), backText(q, 4), backText(q, 24)];

  function showAll(body) {
    const r = body.replay;
    shown = body;
    $('policy-shown').hidden = false;
    $('policy-basis').classList.remove('regret');
    setText($('policy-answer'), r.recommendation ? 'Recommended: end a job after ' + r.recommendation.value + ' without work' : 'What ending idle jobs would have done');
    setText($('policy-basis'), r.answer + ' ' + r.basis + ' Read ' + dateTime(new Date(body.time)) + '.');
    const legend = $('policy-legend');
    legend.replaceChildren();
    for (const [cls, text] of [...(r.recommendation ? [['recommended', 'recommended']] : []), ['bar', '95 % interval']]) { const e = el('span'); e.append(el('i', cls), text); legend.append(e); }
    const same = chosen && r.sweep.find(q => q.for === chosen.for);
    chosen = same || r.sweep.find(q => q.recommended) || r.sweep.find(q => q.rule === r.ends_rule) || r.sweep[0];
    $('policy-values').replaceChildren(...r.sweep.map(q => {
      const label = el('label', q.recommended ? 'recommended' : ''), input = el('input');
      input.type = 'radio'; input.name = 'policy'; input.value = q.for; input.checked = q === chosen;
      input.addEventListener('change', () => choose(q));
      label.append(input, q.for);
      if (q.recommended) label.append(el('span', 'hidden', ' (recommended)'));
      return label;
    }));
    fillTable($('policy-table'), heads, r.sweep.map(q => ({cls: q.recommended ? 'knee' : '', cells: cells(q)})));
    const hurt = r.hurt.filter(h => h.worked_again).slice(0, 30);
    $('policy-whom').hidden = !hurt.length;
    $('whom-title').replaceChildren('Whose work ', el('code', '', r.ends_rule), ' would have lost');
    fillTable($('policy-hurt'), [['user', 'l'], ['command', 'l'], ['ended', ''], ['worked again', ''], ['work lost h', '']],
      hurt.map(h => ({cells: [[h.user || 'not told', 'wrap'], [h.command || '–', 'wrap'], count(h.ended), [count(h.worked_again), 'regret'], num(h.work_lost_hours)]})));
    draw();
    tell();
  }

  function draw() {
    if (!shown || $('view-policy').hidden) return;
    $('policy-charts').replaceChildren(...sweepCharts(shown.replay.sweep, shown.axes, {pick: choose, chosen}));
  }
  function choose(q) {
    chosen = q;
    for (const input of document.querySelectorAll('input[name=policy]')) input.checked = input.value === q.for;
    draw();
    tell();
  }

  const quoted = text => "'" + text.replaceAll("'", "'\\''") + "'";
  function tell() {
    const q = chosen, box = $('policy-chosen'), price = shown.replay.price_per_hour;
    const figures = [[num(q.freed_hours), 'GPU-hours freed' + (price === undefined ? '' : ', worth ' + count(Math.round(q.freed_hours * price))), 'kept'],
      [count(q.ended) + ' of ' + count(q.jobs), 'jobs ended', ''], [count(q.worked_again), 'of them worked again later', q.worked_again ? 'regret' : ''],
      [lostText(q), 'of all work lost', lostClass(q, shown.replay)]];
    const list = el('dl', 'parts');
    for (const [value, text, cls] of figures) { const one = el('div'); one.append(el('dt', '', text), el('dd', cls, value)); list.append(one); }
    const command = el('p', 'command');
    command.append('To try it without ending anything: ', el('code', '', 'lull watch --per job --step ' + quoted(q.rule + ': end') + ' --dry-run'));
    box.replaceChildren(el('h3', '', 'Ended after ' + q.for + (q.recommended ? ', as recommended' : '')), list, command);
  }

  addEventListener('resize', draw);
  views.policy = {
    async show() {
      draw();
      if (reading || Date.now() - read < 600000) return;
      reading = true;
      await readMade('/api/policy', state, body => { read = Date.now(); showAll(body); });
      reading = false;
    },
    showAll,
  };
}
