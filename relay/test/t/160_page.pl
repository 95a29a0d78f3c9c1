# The status page in a real browser.
#
# Proves: from 375 to 1,400 pixels, light and dark, with usual, hostile, many and no states, no element reaches out of the page, no
# text is cut or lies over another, and each has a contrast of at least 4.5 against what is behind it. The browser complains of
# nothing, and nothing from outside becomes markup. Without JavaScript the numbers are there. The script puts newer content in
# its place, and says when the relay no longer answers. Prometheus takes the metrics as they are.
#
# PICTURES=folder keeps a screenshot of each view there.
use strict;
use warnings;

use BrokerTest;
use HTTP::Tiny;
use Test::More;

my $build = "$BrokerTest::Base::here/..";
my $demo = "$build/build/page_demo";
tool([ 'make', '-s', '-C', $build, 'build/page_demo' ]) unless -x $demo;

my $browser = start_browser();

# The demonstration with one of its states: the process, and its address.
sub start_demo
{
	my ($state) = @_;
	my $port = free_port();
	my $process = BrokerTest::Process->new(
		name => "demo_$state", command => [ $demo, "127.0.0.1:$port", $state ], ready => sub { $_[0]->log =~ /^$port$/m });

	$process->start;
	return ($process, "http://127.0.0.1:$port/");
}

# What is wrong with the page as it is shown: a list, and how many pieces of text were looked at.
my $look = <<'END';
const problems = [], boxes = [];
const say = (what, e) => problems.push(what + ': ' + e.tagName + ' ' + e.className + ' ' + e.textContent.trim().slice(0, 40));
const color = text => text.match(/[\d.]+/g).map(Number);
const part = value => value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
const luminance = ([r, g, b]) => 0.2126 * part(r / 255) + 0.7152 * part(g / 255) + 0.0722 * part(b / 255);
const background = e => {
	for (; e; e = e.parentElement) {
		const found = color(getComputedStyle(e).backgroundColor);
		if (found.length < 4 || found[3] > 0) return found;
	}
	return [255, 255, 255];
};
const contrast = e => {
	const [light, dark] = [color(getComputedStyle(e).color), background(e)].map(luminance).sort((a, b) => b - a);
	return (light + 0.05) / (dark + 0.05);
};

if (document.documentElement.scrollWidth > innerWidth) problems.push('the page is ' + document.documentElement.scrollWidth + ' wide');
for (const e of document.body.querySelectorAll('*')) {
	const style = getComputedStyle(e), box = e.getBoundingClientRect();
	if (e.closest('svg') || !e.getClientRects().length) continue;
	if (box.right > innerWidth + 0.5 || box.left < -0.5) say('outside', e);
	if (style.display !== 'inline' && (e.scrollWidth > e.clientWidth + 1 || e.scrollHeight > e.clientHeight + 4)) say('cut', e);
	for (const node of e.childNodes) {
		if (node.nodeType !== Node.TEXT_NODE || !node.data.trim()) continue;
		const range = document.createRange();
		range.selectNodeContents(node);
		for (const rect of range.getClientRects()) boxes.push([rect, e]);
		if (contrast(e) < 4.5) say('contrast ' + contrast(e).toFixed(2), e);
	}
}
boxes.forEach(([a, e], i) => {
	for (const [b, f] of boxes.slice(i + 1))
		if (e !== f && Math.min(a.right, b.right) - Math.max(a.left, b.left) > 1 && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 2)
			say('on ' + f.textContent.trim().slice(0, 20), e);
});
return { problems: problems.slice(0, 10), texts: boxes.length };
END

# That the look finds what it looks for.
sub spoiled
{
	my ($rule) = @_;

	$browser->evaluate("const style = new CSSStyleSheet(); style.replaceSync('$rule'); document.adoptedStyleSheets = [ style ];");
	my $problems = join "\n", @{ $browser->evaluate($look)->{problems} };
	$browser->evaluate('document.adoptedStyleSheets = [];');
	return $problems;
}

foreach my $state (qw(usual trouble hostile many empty))
{
	my ($process, $address) = start_demo($state);

	foreach my $width (375, 1000, 1300, 1400)
	{
		foreach my $scheme (qw(light dark))
		{
			$browser->view(width => $width, scheme => $scheme);
			$browser->open($address);
			my $seen = $browser->evaluate($look);
			is_deeply($seen->{problems}, [], "$state, $width, $scheme: nothing is cut, covered or faint");
			cmp_ok($seen->{texts}, '>', 20, '... of what is there');
			$browser->screenshot("$ENV{PICTURES}/$state-$width-$scheme.png") if $ENV{PICTURES};
		}
	}
	is($browser->evaluate('return document.title;'), 'outbox-relay', "$state: its title is its own");
	is($browser->evaluate(q(return document.querySelectorAll('main script, main [title*="x" i][onclick], b[title]').length;)), 0, '... and no name is markup');
	is_deeply([ $browser->complaints ], [], '... and the browser complains of nothing');

	my $metrics = HTTP::Tiny->new->get("${address}metrics");
	ok($metrics->{success}, "$state: metrics");
  SKIP:
	{
		skip 'promtool is not installed', 1 unless grep { -x "$_/promtool" } split /:/, $ENV{PATH};
		is_deeply([ tool([ 'promtool', 'check', 'metrics' ], input => $metrics->{content}, may_fail => 1) ], [ '', '', 0 ], '... as promtool wants them');
	}
	$browser->open('about:blank');
	$process->stop;
}

my ($process, $address) = start_demo('trouble');
$browser->view(width => 375, scheme => 'light');
$browser->open($address);
like(spoiled('main { width: 30rem }'), qr/the page is \d+ wide/, 'the look finds: a page that is too wide');
like(spoiled('h2 { width: 3rem; overflow: hidden; white-space: nowrap }'), qr/^cut: H2/m, '... text that is cut');
like(spoiled('h2 { position: absolute }'), qr/^on /m, '... text that lies on other text');
like(spoiled('.note, small { color: var(--line) }'), qr/^contrast 1\.\d+: SMALL/m, '... text that is faint');

# ---------------------------------------------------------------- refreshing

$browser->evaluate(q(document.querySelector('main').append('an old page')));
wait_for(sub { !$browser->evaluate(q(return document.querySelector('main').textContent.includes('an old page');)) }, 'newer content');
is_deeply($browser->evaluate($look)->{problems}, [], 'newer content takes its place, and is shown as well');
ok($browser->evaluate(q(return document.getElementById('stale').hidden;)), '... and nothing is said');

$process->kill9;
wait_for(sub { !$browser->evaluate(q(return document.getElementById('stale').hidden;)) }, 'the words that it does not answer');
like($browser->evaluate(q(return document.getElementById('stale').innerText;)), qr/^The relay has not answered since /, 'it says when the relay no longer answers');
is_deeply($browser->evaluate($look)->{problems}, [], '... readable');
$browser->complaints;
$process->start;
wait_for(sub { $browser->evaluate(q(return document.getElementById('stale').hidden;)) }, 'an answer');
pass('... and that ends when it does');

# ---------------------------------------------------------------- without JavaScript

$browser->view(width => 1400, scheme => 'light', scripts => 0);
$browser->open($address);
my $html = $browser->html;
like($html, qr{<th[^>]*>mail.*?<td[^>]*data-label="Due"[^>]*>1,240</td>}s, 'without JavaScript: the numbers of a queue');
like($html, qr{<path class="first" d="M31 .+?L179 }, '... the lines');
like($html, qr{Queue <b>mail</b> of bank is paused}, '... what is blocked');
like($html, qr{<meta http-equiv="refresh" content="30">}, '... and it is loaded again by itself');

done_testing();
