# Delivers one message: POSTs it to RECEIVER_URL. Replace it by what your messages are for.
#
# The receiver knows a second delivery by the Idempotency-Key, and takes no effect twice.

require "net/http"

Outcome = Struct.new(:state, :error_code)
RECEIVER = URI(ENV.fetch("RECEIVER_URL"))
LIMITS = { open_timeout: 5, read_timeout: 5, max_retries: 0 }.freeze

def deliver(event_id, payload)
  headers = { "Content-Type" => "application/json", "Idempotency-Key" => event_id }
  encrypted = { use_ssl: RECEIVER.scheme == "https" }
  response = Net::HTTP.start(RECEIVER.host, RECEIVER.port, **LIMITS, **encrypted) do |http|
    http.post(RECEIVER.request_uri, payload, headers)
  end
  return Outcome.new("DISPATCHED") if response.is_a?(Net::HTTPSuccess)

  Outcome.new(%w[400 422].include?(response.code) ? "FAILED" : "RETRYABLE", "HTTP_#{response.code}")
rescue StandardError => e # refused, too slow, broken off: it may have arrived
  Outcome.new("RETRYABLE", e.class.name)
end
