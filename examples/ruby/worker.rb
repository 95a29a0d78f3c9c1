# Delivers each message at least once. SIGTERM finishes the batch at hand and leaves no lease;
# the messages of a worker that dies, or loses its connection or leases, go to another worker.

require "pg"
require "socket"
require_relative "deliver"

ME = "#{Socket.gethostname}:#{Process.pid}".freeze
CLAIM = "SELECT * FROM outbox.claim($1, 20, '30 s')".freeze
COMPLETE = <<~SQL.freeze
  SELECT * FROM outbox.complete_batch($1, $2, $3, $4, error_codes => $5) WHERE error IS NOT NULL
SQL
ARRAY = PG::TextEncoder::Array.new
SIGNALLED, ON_SIGNAL = IO.pipe # a signal ends each wait
$stdout.sync = true
$stopping = false

# What came with the answer to a claim is not on the socket any more.
def wait(db, pause)
  pause = 0 while db.notifies
  IO.select([db.socket_io, SIGNALLED], nil, nil, pause)
  db.consume_input
end

def report(db, batch, outcomes)
  ids, tokens = %w[outbox_id lease_token].map { |name| ARRAY.encode(batch.map { |m| m[name] }) }
  states, codes = %i[state error_code].map { |name| ARRAY.encode(outcomes.map(&name)) }
  db.exec_params(COMPLETE, [ME, ids, tokens, states, codes]).each do |row|
    # P7002: the lease was lost, and another worker has the message.
    puts "not recorded: #{row["outbox_id"]} #{row["error"]}"
  end
end

def work(db)
  pause = 0.1
  # Before the first claim; not through a pool in transaction mode, which has no LISTEN.
  db.exec("LISTEN outbox_pending") unless ENV.key?("POOLED")
  until $stopping
    batch = db.exec_params(CLAIM, [ME]).to_a
    # Side by side, each with a time limit: together they end well within the lease.
    threads = batch.map { |m| Thread.new { deliver(m["event_id"], m["payload"]) } }
    report(db, batch, threads.map(&:value)) unless batch.empty?
    wait(db, pause) if batch.empty?
    pause = batch.empty? ? [2 * pause, 1].min : 0.1
  end
end

stop = proc do
  $stopping = true
  ON_SIGNAL.write_nonblock(".")
end
%w[INT TERM].each { |name| trap(name, stop) }
until $stopping
  begin
    PG.connect(ENV.fetch("DATABASE_URL")) { |db| work(db) }
  rescue PG::Error => e # a lost connection: connect, LISTEN and claim again
    puts "trying again: #{e.message}"
    IO.select([SIGNALLED], nil, nil, 1)
  end
end
