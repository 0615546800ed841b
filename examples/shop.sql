-- A small shop: three tables and three views. Run with: belvedere --db shop.bv apply -f examples/shop.sql

CREATE TABLE customers (
  id BIGINT PRIMARY KEY,
  name STRING,
  city STRING
);

CREATE TABLE orders (
  id BIGINT PRIMARY KEY,
  customer BIGINT,
  placed DATE,
  total DECIMAL(12,2)
);

CREATE TABLE items (
  order_id BIGINT,
  line INT,
  product STRING,
  quantity INT,
  price DECIMAL(10,2),
  PRIMARY KEY (order_id, line)
);

-- An aggregate: one row per customer.
CREATE MATERIALIZED VIEW spend AS
SELECT customer, count(*) AS n, sum(total) AS total, max(placed) AS latest
FROM orders
GROUP BY customer;

-- A join: one row per line of an order.
CREATE MATERIALIZED VIEW order_lines AS
SELECT o.id AS order_id, i.line, c.city, i.product, i.quantity * i.price AS amount
FROM items i
JOIN orders o ON i.order_id = o.id
JOIN customers c ON o.customer = c.id;

-- A view over a view: both change in the same step.
CREATE MATERIALIZED VIEW city_revenue AS
SELECT city, count(DISTINCT product) AS products, sum(amount) AS revenue
FROM order_lines
GROUP BY city;
