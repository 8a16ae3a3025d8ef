// What all pages share: elements whose text is text, numbers and times as people read them.
'use strict';
const $ = id => document.getElementById(id);
// As lull prints names (base/text.h): nothing in them turns the direction of the text, ends a line or hides letters.
const plain = text => String(text).replace(/[\u0000-\u001f\u007f-\u009f\u061c\u200e\u200f\u2028-\u202e\u2066-\u206f\ufeff\ufff9-\ufffb]|\udb40[\udc00-\udc7f]/g, c => '\t\n\v\f\r'.includes(c) ? ' ' : '?');
const el = (tag, cls, text) => { const e = document.createElement(tag); if (cls) e.className = cls; if (text !== undefined) e.textContent = plain(text); return e; };
const css = name => getComputedStyle(document.documentElement).getPropertyValue('--' + name).trim();
const count = n => n.toLocaleString('en-US');
const num = n => n === null ? '–' : n >= 1000 ? Math.round(n).toLocaleString('en-US') : n.toFixed(n >= 100 ? 0 : n >= 10 ? 1 : n >= 1 || n === 0 ? 2 : n >= .1 ? 3 : 4);
const pct = n => n === null || n === undefined ? '' : n.toFixed(1) + ' %';
const pad = n => String(n).padStart(2, '0');
function span(s) {
  if (s < 1) return Math.round(s * 1000) + 'ms';
  if (s < 60) return (s < 10 ? +s.toFixed(1) : Math.round(s)) + 's';
  s = Math.round(s);
  const d = Math.floor(s / 86400), h = Math.floor(s / 3600) % 24, m = Math.floor(s / 60) % 60, q = s % 60;
  return [d && d + 'd', h && h + 'h', m && m + 'm', q && !d && q + 's'].filter(Boolean).join('');
}
