# The tables of schema.sql, as Active Record maps them.

require "active_record"

ActiveRecord::Base.establish_connection(
  url: ENV.fetch("DATABASE_URL"),
  prepared_statements: false # PgBouncer before 1.21 has none in transaction mode
)

class Order < ActiveRecord::Base
end

class Shipment < ActiveRecord::Base
end

# What claim() returns. Its payload arrives as a Hash.
class Message < ActiveRecord::Base
  self.table_name = "outbox.messages"
end

# Calls a function of outbox.
def call(sql, values)
  ActiveRecord::Base.connection.select_all(ActiveRecord::Base.sanitize_sql([sql, values]))
end
