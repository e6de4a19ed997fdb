"""Style sheet of the page: light and dark, on a phone, and on paper."""

CSS = """
:root { color-scheme: light; --paper: #fff; --card: #f5f6f8; --ink: #1a1d22;
  --muted: #5a626e; --line: #d8dce3; --shade: #1a1d2240; --link: #005a8f;
  --blue: #0072b2; --marked: #b34f00; }
@media screen and (prefers-color-scheme: dark) { :root { color-scheme: dark;
  --paper: #14171b; --card: #1d2126; --ink: #e6e8eb; --muted: #a0a8b4;
  --line: #363c45; --shade: #000c; --link: #7cc0ee; --blue: #4ba3dc;
  --marked: #ff9a4d; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1.5rem 1rem 4rem; max-width: 58rem;
  background: var(--paper); color: var(--ink); overflow-wrap: break-word;
  font: 1rem/1.55 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; }
h1 { font-size: 1.8rem; line-height: 1.2; margin: 0 0 .5rem; }
h2 { font-size: 1.4rem; line-height: 1.25; margin: 3rem 0 .75rem; }
h3 { font-size: 1.1rem; margin: 2rem 0 .5rem; }
p, nav { max-width: 44rem; }
p { margin: .6rem 0; }
header p { font-size: 1.1rem; }
a { color: var(--link); }
nav { background: var(--card); border-radius: .5rem; padding: .75rem 1rem;
  margin: 1.25rem 0; }
nav ol { margin: .25rem 0 0; padding-left: 1.4rem; }
nav ul { margin: 0; padding-left: 1.1rem; }
code { font-family: ui-monospace, Menlo, Consolas, monospace; font-size: .9em; }
.figures { display: flex; flex-wrap: wrap; gap: 1rem 1.5rem; margin: 1rem 0; }
figure { margin: 0; max-width: 100%; }
figcaption, footer { color: var(--muted); font-size: .875rem;
  line-height: 1.4; }
.plot { display: block; max-width: 100%; height: auto; }
svg.plot * { stroke-linejoin: round; }
svg.plot text { font-family: inherit !important; fill: var(--ink); }
img.plot { background: #fff; border-radius: .25rem; }
.table { margin: 1.25rem 0; }
.table figcaption { max-width: 44rem; padding-bottom: .4rem; }
/* Shadows at the edges say that there is more of a table to scroll to. */
.wide { overflow-x: auto; background:
  linear-gradient(to right, var(--paper) 1rem, transparent) 0 0 / 3rem 100% local,
  linear-gradient(to left, var(--paper) 1rem, transparent) 100% 0 / 3rem 100% local,
  linear-gradient(to right, var(--shade), transparent) 0 0 / .6rem 100% scroll,
  linear-gradient(to left, var(--shade), transparent) 100% 0 / .6rem 100% scroll;
  background-repeat: no-repeat; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: .3rem .8rem; text-align: right; border-bottom: 1px solid var(--line);
  white-space: nowrap; }
th { font-weight: 600; white-space: normal; }
tbody th { font-weight: 400; min-width: 6rem; }
td, tbody th { vertical-align: top; }
thead th { vertical-align: bottom; }
th:first-child, .text { text-align: left; }
th:first-child { padding-left: 0; }
th:last-child, td:last-child { padding-right: 0; }
td.text { white-space: normal; }
@media screen and (max-width: 40rem) { table { font-size: .8125rem; }
  th, td { padding: .3rem .35rem; } }
footer { margin-top: 4rem; border-top: 1px solid var(--line); padding-top: .75rem; }
@media print { @page { margin: 16mm; }
  :root { font-size: 10pt; }
  body { max-width: none; padding: 0; }
  h2, h3, figcaption { break-after: avoid; }
  .figures figure, tr { break-inside: avoid; }
  .wide { overflow: visible; background: none; }
  table { font-size: 8pt; }
  th, td { padding: .25rem .35rem; white-space: normal; }
  th, .text { overflow-wrap: anywhere; }
  a { color: inherit; text-decoration: none; }
  footer { margin-top: 2rem; } }
"""
