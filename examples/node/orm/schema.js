// The tables of schema.sql, as Drizzle maps them.
import { drizzle } from 'drizzle-orm/node-postgres';
import { bigint, pgTable, text } from 'drizzle-orm/pg-core';
import pg from 'pg';

export const orders = pgTable('orders', {
  id: bigint({ mode: 'number' }).primaryKey().generatedAlwaysAsIdentity(),
  item: text().notNull(),
});

export const shipments = pgTable('shipments', {
  orderId: bigint('order_id', { mode: 'number' }).notNull().references(() => orders.id),
});

export const pool = new pg.Pool({ connectionString: process.env.DATABASE_URL, keepAlive: true });
pool.on('error', (error) => console.error('an idle connection was lost:', error.message));

export const db = drizzle(pool);
