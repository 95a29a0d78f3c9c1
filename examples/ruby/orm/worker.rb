# Ships each order exactly once, with Active Record: the shipment and the report of its message are
# one transaction. A worker that dies, or whose lease is lost, has shipped nothing.

require "socket"
require_relative "models"

ME = "#{Socket.gethostname}:#{Process.pid}".freeze
CLAIM = "SELECT outbox_id, lease_token, payload FROM outbox.claim(:me, 10, '30 s')".freeze
COMPLETE = "SELECT outbox.complete(:id, :token, :me, 'DISPATCHED')".freeze
# Unlike complete(), complete_batch() does not raise P7002, but returns it.
RETRY = <<~SQL.freeze
  SELECT outbox.complete_batch(:me, ARRAY[:id]::uuid[], ARRAY[:token]::uuid[], '{RETRYABLE}',
    error_codes => ARRAY[:code])
SQL
SIGNALLED, ON_SIGNAL = IO.pipe # a signal ends each wait
$stdout.sync = true
$stopping = false

def code_of(error)
  result = error.cause.result if error.cause.is_a?(PG::Error)
  result&.error_field(PG::PG_DIAG_SQLSTATE) || error.class.name
end

def handle(message)
  lease = { id: message.outbox_id, token: message.lease_token, me: ME }
  Shipment.transaction do
    Shipment.create!(order_id: message.payload["id"])
    call(COMPLETE, lease)
  end
rescue StandardError => e
  code = code_of(e)
  # P7002: another worker has the message, and ships the order. Else what failed is rolled back.
  call(RETRY, lease.merge(code: code)) unless code == "P7002"
end

def work
  pause = 0.1
  until $stopping
    batch = Message.find_by_sql([CLAIM, { me: ME }])
    batch.each { |message| handle(message) }
    IO.select([SIGNALLED], nil, nil, pause) if batch.empty?
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
    ActiveRecord::Base.connection_pool.with_connection { work }
  rescue ActiveRecord::ActiveRecordError => e # a lost connection: the pool makes another one
    puts "trying again: #{e.message}"
    IO.select([SIGNALLED], nil, nil, 1)
  end
end
