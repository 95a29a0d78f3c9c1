# Places an order for each item that is named, with Active Record. The message is stored by the
# order's own transaction: together with the order or not at all.

require_relative "models"

ENQUEUE = <<~SQL.freeze
  SELECT outbox.enqueue('order.placed', :payload,
    aggregate_type => 'order', aggregate_id => :order_id)
SQL

def place_order(item)
  Order.transaction do
    order = Order.create!(item: item)
    call(ENQUEUE, payload: order.to_json(only: %i[id item]), order_id: order.id.to_s)
    order.id
  end
end

failed = false
ARGV.each do |item|
  puts "order #{place_order(item)}"
rescue ActiveRecord::StatementInvalid => e
  raise unless e.cause.is_a?(PG::IntegrityConstraintViolation)

  warn "no order of #{item}: #{e.message}"
  failed = true
end
exit !failed
