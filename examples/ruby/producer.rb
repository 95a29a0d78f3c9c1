# Places an order for each item that is named. An order and its message are stored together or not
# at all, and an order that fails leaves a connection that is ready for the next one.

require "json"
require "pg"

INSERT = "INSERT INTO orders (item) VALUES ($1) RETURNING id"
ENQUEUE = <<~SQL
  SELECT outbox.enqueue('order.placed', $1, aggregate_type => 'order', aggregate_id => $2)
SQL

def place_order(db, item)
  db.transaction do
    id = db.exec_params(INSERT, [item]).getvalue(0, 0) # a string, as all that pg returns
    db.exec_params(ENQUEUE, [JSON.generate(id: Integer(id), item: item), id])
    id
  end
end

failed = false
db = PG.connect(ENV.fetch("DATABASE_URL"))
ARGV.each do |item|
  puts "order #{place_order(db, item)}"
rescue PG::IntegrityConstraintViolation => e
  warn "no order of #{item}: #{e.message}"
  failed = true
end
exit !failed
