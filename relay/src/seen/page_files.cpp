// The style and the script of the status page.
//
// Colours have a contrast of at least 4.5 against what is behind them, in both schemes. Nothing is clipped: what is
// long wraps.
#include "seen/page.h"

namespace relay {

const std::string_view page_style = R"css(:root {
	color-scheme: light dark;
	--back: #f6f7f8; --panel: #ffffff; --text: #1b1f24; --quiet: #57606a; --line: #d5d9de; --link: #0b57b0;
	--good: #1a6b33; --warn: #7d4e00; --bad: #ad1f17; --first: #0b57b0; --second: #ad1f17;
}
@media (prefers-color-scheme: dark) {
	:root {
		--back: #14171a; --panel: #1d2125; --text: #e6e9ed; --quiet: #a3adb8; --line: #3a4149; --link: #8ab8ff;
		--good: #7fd49a; --warn: #e9bd6a; --bad: #ff9a8f; --first: #8ab8ff; --second: #ff9a8f;
	}
}
* { box-sizing: border-box; }
body {
	margin: 0 auto; max-width: 86rem; padding: 1rem; background: var(--back); color: var(--text);
	font: 1rem/1.45 system-ui, sans-serif; overflow-wrap: anywhere;
}
header { display: flex; flex-wrap: wrap; gap: 0 1.5rem; align-items: baseline; justify-content: space-between; }
h1 { font-size: 1.4rem; margin: 0; }
h2 { font-size: 1.1rem; margin: 2rem 0 .6rem; }
p, ul, dl, dd, figure { margin: 0; padding: 0; }
a { color: var(--link); }
nav a { margin-left: 1rem; }
nav a:first-child { margin-left: 0; }
small { color: var(--quiet); font-size: .85rem; font-weight: normal; display: block; }
code { font: .9em ui-monospace, monospace; }
.ready { margin-top: .5rem; color: var(--quiet); }
#stale { margin-top: .75rem; padding: .5rem .75rem; border: 2px solid var(--bad); color: var(--bad); }
.state {
	display: inline-block; padding: 0 .5rem; border: 1px solid; border-radius: .25rem; font-size: .875rem; font-weight: 600;
	white-space: nowrap;
}
.good { color: var(--good); } .warn { color: var(--warn); } .bad { color: var(--bad); }
.note { color: var(--quiet); }
.figures { display: grid; grid-template-columns: repeat(auto-fit, minmax(9rem, 1fr)); gap: .75rem; margin-top: 1rem; }
.figures div, .chart, .blocked, .errors li { background: var(--panel); border: 1px solid var(--line); border-radius: .375rem; }
.figures div { padding: .5rem .75rem; text-align: right; }
.figures dt { color: var(--quiet); font-size: .875rem; }
.figures dd { font-size: 1.4rem; font-variant-numeric: tabular-nums; }
.blocked { padding: .5rem 1rem .5rem 2rem; border-left: 4px solid var(--warn); }
.errors { list-style: none; }
.errors li { padding: .5rem .75rem; margin-bottom: .5rem; }
.errors time { color: var(--quiet); }
.charts { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(18rem, 100%), 1fr)); gap: .75rem; }
.chart { padding: .75rem; }
.chart figcaption { font-weight: 600; }
.chart svg { display: block; width: 100%; height: 5rem; overflow: visible; }
.chart path { fill: none; stroke-width: 1.75; stroke-linejoin: round; vector-effect: non-scaling-stroke; }
.chart path.grid { stroke: var(--line); stroke-width: 1; }
.chart path.first { stroke: var(--first); }
.chart path.second { stroke: var(--second); stroke-dasharray: 4 3; }
.chart .top, .chart .time { color: var(--quiet); font-size: .8125rem; font-variant-numeric: tabular-nums; }
.chart .time { display: flex; justify-content: space-between; }
.chart ul { list-style: none; font-size: .875rem; font-variant-numeric: tabular-nums; }
.chart li span::before {
	content: ""; display: inline-block; width: 1.25rem; margin-right: .4rem; vertical-align: middle; border-top: 2px solid var(--first);
}
.chart li.second span::before { border-top: 2px dashed var(--second); }
table { width: 100%; border-collapse: collapse; background: var(--panel); border: 1px solid var(--line); }
th, td { padding: .4rem .75rem; text-align: left; vertical-align: baseline; border-bottom: 1px solid var(--line); unicode-bidi: isolate; }
thead th { color: var(--quiet); font-size: .875rem; font-weight: 600; white-space: nowrap; }
tbody th { font-weight: 600; width: 25%; }
.number { text-align: right; font-variant-numeric: tabular-nums; }
td.number { white-space: nowrap; }
@media (max-width: 76rem) {
	table { display: block; background: none; border: 0; }
	tbody { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(22rem, 100%), 1fr)); gap: .6rem; }
	thead { display: none; }
	tbody tr {
		display: grid; grid-template-columns: repeat(auto-fill, minmax(6rem, 1fr)); gap: .4rem .5rem; padding: .6rem .75rem;
		align-content: start; background: var(--panel); border: 1px solid var(--line); border-radius: .375rem;
	}
	tbody th, tbody td { display: block; padding: 0; border: 0; width: auto; }
	tbody th, tbody td:not(.number) { grid-column: 1 / -1; }
	td.number { font-size: .9375rem; white-space: normal; }
	td.number::before { content: attr(data-label); display: block; color: var(--quiet); font-size: .8125rem; }
}
)css";

const std::string_view page_script = R"js('use strict';
(() => {
	const main = document.querySelector('main'), stale = document.getElementById('stale');
	let answered = new Date();

	// Leaves the content as it is while text is selected in it, or it cannot be seen.
	async function refresh() {
		if (document.hidden || !getSelection().isCollapsed) return;
		try {
			const response = await fetch('content', { cache: 'no-store' });
			if (!response.ok) throw new Error(response.statusText);
			main.innerHTML = await response.text();
			answered = new Date();
			stale.hidden = true;
		} catch {
			const words = 'The relay has not answered since ' + answered.toLocaleTimeString() + '. This page shows its state at that time.';
			if (stale.textContent !== words) stale.textContent = words;
			stale.hidden = false;
		}
	}
	setInterval(refresh, 5000);
	document.addEventListener('visibilitychange', refresh);
})();
)js";

} // namespace relay
