-- pgbench: a customer orders something. One in twenty is rolled back: of these nothing may remain.
\set customer random(1, 10)
\set item random(1, 5)
\set quantity random(1, 5)
\set amount random(1, 100)
\set fate random(1, 20)
BEGIN;
SELECT shop.place_order('customer ' || :customer, 'item ' || :item, :quantity, :amount);
\if :fate > 1
COMMIT;
\else
ROLLBACK;
\endif
