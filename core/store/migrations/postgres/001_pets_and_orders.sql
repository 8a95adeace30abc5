CREATE TABLE pets (
  id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  name TEXT NOT NULL,
  category_id BIGINT NOT NULL,
  status TEXT NOT NULL
);
CREATE INDEX pets_by_status ON pets (status, id);

-- An order outlives its pet, so pet_id is not a foreign key. created_at is Unix time in milliseconds.
CREATE TABLE orders (
  id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  pet_id BIGINT NOT NULL,
  status TEXT NOT NULL,
  created_at BIGINT NOT NULL
);
CREATE INDEX orders_by_status ON orders (status, id);
CREATE UNIQUE INDEX orders_open_by_pet ON orders (pet_id) WHERE status IN ('placed', 'approved');
