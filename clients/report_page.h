// Style and script of the page that `rjctl report --html` writes.
#ifndef CLIENTS_REPORT_PAGE_H_
#define CLIENTS_REPORT_PAGE_H_

namespace rjdbi::clients {

inline constexpr char kPageStyle[] = R"css(
:root { color-scheme: light dark; --back: #fff; --text: #1b1f24; --dim: #59636e; --line: #d1d9e0;
  --head: #f2f4f7; --bar: #cfe0fc; --good: #116329; --warn: #7d4e00; --bad: #a40e26; }
@media (prefers-color-scheme: dark) { :root { --back: #0d1117; --text: #e6edf3; --dim: #9198a1;
  --line: #3d444d; --head: #1a2029; --bar: #1d3a66; --good: #56d364; --warn: #e3b341;
  --bad: #ff7b72; } }
body { margin: 0 auto; padding: 1rem 1.5rem 4rem; max-width: 100rem; background: var(--back);
  color: var(--text); font: 15px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.2rem; margin-top: 2.5rem; overflow-wrap: anywhere; }
a { color: inherit; } .dim { color: var(--dim); }
.wide { overflow-x: auto; } summary { cursor: pointer; margin-bottom: 0.5rem; }
table { border-collapse: collapse; font-size: 0.87rem; }
th, td { padding: 0.15rem 0.6rem; text-align: left; vertical-align: top;
  border-bottom: 1px solid var(--line); }
th { background: var(--head); white-space: nowrap; }
th button { all: unset; cursor: pointer; } th button::after { content: " \2195"; color: var(--dim); }
th button:focus-visible { outline: 2px solid var(--text); }
th[aria-sort=ascending] button::after { content: " \2191"; }
th[aria-sort=descending] button::after { content: " \2193"; }
.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
.heat { background: linear-gradient(to left, var(--bar) var(--share), transparent 0); }
code { font-family: ui-monospace, monospace; overflow-wrap: anywhere; }
.asm td { border-bottom: 0; } .asm tr:target { outline: 2px solid var(--warn); }
.asm code { white-space: pre; }
.attached { color: var(--good); } .degraded { color: var(--warn); } .refused { color: var(--bad); }
.why { color: var(--dim); } .why b { color: var(--bad); } .why b.degraded { color: var(--warn); }
tr.bad td:first-child { box-shadow: inset 3px 0 var(--bad); }
.statement { font-size: 1.05rem; } .no { color: var(--bad); font-weight: 600; }
)css";

// Sorts a table by the column whose heading is pressed, or that the address names
// (#sort=count).
inline constexpr char kPageScript[] = R"js(
'use strict';
function sortBy(head) {
  const table = head.closest('table'), body = table.tBodies[0];
  const column = [...head.parentNode.children].indexOf(head);
  const down = head.getAttribute('aria-sort') === 'ascending' ||
      (head.dataset.first === 'down' && head.getAttribute('aria-sort') !== 'descending');
  for (const other of head.parentNode.children) other.removeAttribute('aria-sort');
  head.setAttribute('aria-sort', down ? 'descending' : 'ascending');
  const key = row => row.cells[column].dataset.key ?? row.cells[column].textContent;
  const order = new Intl.Collator('en', {numeric: true});
  const rows = [...body.rows].map(row => [key(row), row]);
  rows.sort((a, b) => order.compare(a[0], b[0]) * (down ? -1 : 1));
  body.append(...rows.map(row => row[1]));
}
for (const head of document.querySelectorAll('th[data-sort]')) {
  head.querySelector('button').addEventListener('click', () => sortBy(head));
}
const wanted = new URLSearchParams(location.hash.slice(1)).get('sort');
const named = wanted && document.querySelector(`th[data-sort="${CSS.escape(wanted)}"]`);
if (named) sortBy(named);
document.documentElement.dataset.ready = 'yes';
)js";

}  // namespace rjdbi::clients

#endif  // CLIENTS_REPORT_PAGE_H_
