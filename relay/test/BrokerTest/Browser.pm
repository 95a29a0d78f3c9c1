# Debian's Chromium without a window, driven by chromedriver's HTTP interface.
#
#   my $browser = start_browser();
#   $browser->view(width => 375, scheme => 'dark', scripts => 0)    scripts run unless 0
#   $browser->open($url)
#   $browser->evaluate($script)         what its return statement gives; also where the page's own scripts are off
#   $browser->html                      of the document as it stands
#   $browser->complaints                what the console has said since the last call: errors, refused resources
#   $browser->screenshot($file)         the whole page
#
# Guarantees: its profile is a new folder; it connects to nothing but what it is told to open. It ends with the test.
package BrokerTest::Browser;

use strict;
use warnings;

use parent 'BrokerTest::Process';

use BrokerTest::Base qw(free_port from_json new_folder to_json);
use HTTP::Tiny;
use MIME::Base64 'decode_base64';

my @quiet = qw(--headless --no-sandbox --disable-gpu --disable-quic --disable-dev-shm-usage --no-first-run --hide-scrollbars
	--disable-background-networking --disable-component-update --disable-sync);

sub new
{
	my ($class) = @_;
	my $port = free_port();
	my $folder = new_folder('browser');
	my $self = $class->SUPER::new(
		name => 'browser', folder => $folder, port => $port, env => { HOME => $folder, XDG_CONFIG_HOME => $folder, XDG_CACHE_HOME => $folder },
		command => [ 'chromedriver', "--port=$port" ],
		ready => sub { $_[0]->log =~ /started successfully/ });

	$self->{http} = HTTP::Tiny->new(timeout => $ENV{PG_TEST_TIMEOUT_DEFAULT} || 180, proxy => undef, http_proxy => undef);
	return $self;
}

sub start
{
	my ($self) = @_;

	$self->SUPER::start;
	my $session = $self->ask('POST', '/session', { capabilities => { alwaysMatch => {
		'goog:loggingPrefs' => { browser => 'ALL' },
		'goog:chromeOptions' => { binary => '/usr/bin/chromium', args => [ @quiet, "--user-data-dir=$self->{folder}/profile" ] } } } });
	$self->{session} = "/session/$session->{sessionId}";
	return $self;
}

# A command of WebDriver: its value.
sub ask
{
	my ($self, $method, $path, $body) = @_;
	my $answer = $self->{http}->request($method, "http://127.0.0.1:$self->{port}$path",
		$body ? { content => to_json($body), headers => { 'content-type' => 'application/json' } } : {});

	die "$path: $answer->{status} $answer->{content}" unless $answer->{success};
	return from_json($answer->{content})->{value};
}

# A command of Chrome's own protocol.
sub chrome
{
	my ($self, $command, %parameters) = @_;

	return $self->ask('POST', "$self->{session}/goog/cdp/execute", { cmd => $command, params => \%parameters });
}

sub view
{
	my ($self, %options) = @_;

	$self->chrome('Emulation.setDeviceMetricsOverride', width => $options{width}, height => 900, deviceScaleFactor => 1, mobile => JSON::PP::false());
	$self->chrome('Emulation.setEmulatedMedia', features => [ { name => 'prefers-color-scheme', value => $options{scheme} } ]);
	$self->chrome('Emulation.setScriptExecutionDisabled', value => $options{scripts} // 1 ? JSON::PP::false() : JSON::PP::true());
	return;
}

sub open { my ($self, $url) = @_; return $self->ask('POST', "$self->{session}/url", { url => $url }); }

sub evaluate
{
	my ($self, $script) = @_;
	my $result = $self->chrome('Runtime.evaluate', expression => "(() => { $script })()", returnByValue => JSON::PP::true());

	die "$script: " . to_json($result->{exceptionDetails}) if $result->{exceptionDetails};
	return $result->{result}{value};
}

sub html
{
	my ($self) = @_;
	my $document = $self->chrome('DOM.getDocument', depth => 0);

	return $self->chrome('DOM.getOuterHTML', nodeId => $document->{root}{nodeId})->{outerHTML};
}

sub complaints
{
	my ($self) = @_;

	return map { $_->{message} } @{ $self->ask('POST', "$self->{session}/se/log", { type => 'browser' }) };
}

sub screenshot
{
	my ($self, $file) = @_;
	my $picture = $self->chrome('Page.captureScreenshot', format => 'png', captureBeyondViewport => JSON::PP::true());

	CORE::open my $out, '>:raw', $file or die "$file: $!";
	print $out decode_base64($picture->{data});
	close $out or die "$file: $!";
	return;
}

1;
