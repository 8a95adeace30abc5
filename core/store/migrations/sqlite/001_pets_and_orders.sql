-- AUTOINCREMENT: an id is never used twice, not even after its row is deleted.
CREATE TABLE pets (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  name TEXT NOT NULL,
  category_id INTEGER NOT NULL,
  status TEXT NOT NULL
) STRICT;
CREATE INDEX pets_by_status ON pets (status, id);

-- An order outlives its pet, so pet_id is not a foreign key. created_at is Unix time in milliseconds.
CREATE TABLE orders (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  pet_id INTEGER NOT NULL,
  status TEXT NOT NULL,
  created_at INTEGER NOT NULL
) STRICT;
CREATE INDEX orders_by_status ON orders (status, id);
CREATE UNIQUE INDEX orders_open_by_pet ON orders (pet_id) WHERE status IN ('placed', 'approved');
