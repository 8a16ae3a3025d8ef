// The views of the page: Now, History and Policy, by the part of the address behind #. What the other two need is read
// when they are first looked at. Whether the history is being recorded is said on all of them.
'use strict';
const views = {};  // by name: show(), which is called whenever the view comes up

function showView() {
  const wanted = ['history', 'policy'].includes(location.hash.slice(1)) ? location.hash.slice(1) : 'now';
  for (const name of ['now', 'history', 'policy']) $('view-' + name).hidden = name !== wanted;
  for (const link of $('views').children) {
    if (link.hash === '#' + wanted) link.setAttribute('aria-current', 'page');
    else link.removeAttribute('aria-current');
  }
  if (views[wanted]) views[wanted].show();
}

// Reads what takes the server some time to make: asks again until it is there.
// state(text): what to say meanwhile; done(object).
async function readMade(path, state, done) {
  for (;;) {
    let wait = 1000;
    try {
      const answer = await fetch(path), body = await answer.json();
      if (answer.status === 200) return done(body);
      if (answer.status === 202) state('Reading the recorded days …');
      else {
        state(body.error || 'The server says ' + answer.status + '.', true);
        if (answer.status === 404) return undefined;
        wait = 15000;
      }
    } catch { state('The server does not answer.', true); wait = 5000; }
    await new Promise(go => setTimeout(go, wait));
  }
}

async function readRecording() {
  try {
    const answer = await fetch('/api/recording');
    if (answer.status !== 200) return;
    const text = (await answer.json()).trouble || '';
    const box = $('trouble');
    if (box.hidden !== !text) box.hidden = !text;
    if (text && box.textContent !== 'History: ' + text) box.textContent = 'History: ' + text;
  } catch { /* the stream says when the server is gone */ }
}

const dateTime = (date, seconds) => date.toLocaleDateString('en-GB', {weekday: 'short', day: 'numeric', month: 'short'}) + ' ' +
  pad(date.getHours()) + ':' + pad(date.getMinutes()) + (seconds ? ':' + pad(date.getSeconds()) : '');
const hoursText = h => h >= 100 ? count(Math.round(h)) : h >= .1 || h === 0 ? h.toFixed(1) : h < .0005 ? '< 0.001' : h.toFixed(3);
// "3 days 4 h", "2 h 10 min": for people.
function longSpan(s) {
  const d = Math.floor(s / 86400), h = Math.floor(s / 3600) % 24, m = Math.round(s / 60) % 60;
  if (d) return d + (d === 1 ? ' day' : ' days') + (h ? ' ' + h + ' h' : '');
  if (h) return h + ' h' + (m ? ' ' + m + ' min' : '');
  return Math.max(1, m) + ' min';
}

addEventListener('hashchange', showView);
addEventListener('DOMContentLoaded', showView);
setInterval(readRecording, 15000);
readRecording();
