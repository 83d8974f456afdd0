CREATE TABLE migrations (
	version INTEGER NOT NULL,
	name TEXT NOT NULL,
	min_code_version INTEGER NOT NULL,
	applied_at BIGINT NOT NULL,
	PRIMARY KEY (version)
);

CREATE TABLE flags (
	name TEXT NOT NULL,
	value TEXT,
	changed_at BIGINT NOT NULL,
	PRIMARY KEY (name)
);

CREATE TABLE jobs (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
	uid TEXT NOT NULL,
	kind TEXT NOT NULL,
	state TEXT NOT NULL,
	priority SMALLINT NOT NULL,
	run_at BIGINT NOT NULL,
	held BOOLEAN DEFAULT 0 NOT NULL,
	attempts INTEGER DEFAULT 0 NOT NULL,
	max_attempts INTEGER NOT NULL,
	reclaims INTEGER DEFAULT 0 NOT NULL,
	claimed_by TEXT,
	token BIGINT DEFAULT 0 NOT NULL,
	enqueued_at BIGINT NOT NULL,
	claimed_at BIGINT,
	finished_at BIGINT,
	dedupe_key TEXT,
	payload TEXT NOT NULL,
	rerun_payload TEXT,
	correlation_id TEXT,
	last_errors TEXT
);

CREATE INDEX jobs_claim ON jobs (priority, run_at, id) WHERE state IN ('pending', 'retryable') AND NOT held;

CREATE INDEX jobs_claimed ON jobs (claimed_by, id) WHERE state = 'running';

CREATE INDEX jobs_finished ON jobs (finished_at, id) WHERE state IN ('succeeded', 'failed', 'cancelled');

CREATE UNIQUE INDEX jobs_live ON jobs (kind, dedupe_key) WHERE dedupe_key IS NOT NULL AND state IN ('pending', 'retryable', 'running');

CREATE UNIQUE INDEX jobs_uid ON jobs (uid);

CREATE TABLE workers (
	id TEXT NOT NULL,
	beat BIGINT DEFAULT 0 NOT NULL,
	beat_at BIGINT NOT NULL,
	dead_at BIGINT,
	kinds TEXT NOT NULL,
	version TEXT NOT NULL,
	seen_beat BIGINT DEFAULT (-1) NOT NULL,
	unchanged_s FLOAT DEFAULT 0 NOT NULL,
	PRIMARY KEY (id)
);

CREATE TABLE leases (
	name TEXT NOT NULL,
	claimed_by TEXT NOT NULL,
	renewals BIGINT DEFAULT 0 NOT NULL,
	PRIMARY KEY (name)
);

CREATE TABLE paused_kinds (
	kind TEXT NOT NULL,
	paused_at BIGINT NOT NULL,
	PRIMARY KEY (kind)
);

CREATE TABLE sources (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
	identity TEXT NOT NULL,
	name TEXT NOT NULL,
	kind TEXT NOT NULL,
	url TEXT NOT NULL,
	"key" TEXT DEFAULT '' NOT NULL,
	proxy TEXT DEFAULT '' NOT NULL,
	limits TEXT DEFAULT '{}' NOT NULL,
	origin TEXT NOT NULL,
	is_removed BOOLEAN DEFAULT 0 NOT NULL,
	caps TEXT,
	caps_at BIGINT,
	changed_at BIGINT NOT NULL,
	UNIQUE (identity)
);

CREATE UNIQUE INDEX sources_name ON sources (name) WHERE NOT is_removed;

CREATE TABLE source_state (
	source_id BIGINT NOT NULL,
	is_enabled BOOLEAN DEFAULT 1 NOT NULL,
	is_paused BOOLEAN DEFAULT 0 NOT NULL,
	paused_until BIGINT,
	stopped_because TEXT,
	cooldown_until BIGINT,
	cooldown_level INTEGER DEFAULT 0 NOT NULL,
	breaker_state TEXT DEFAULT 'closed' NOT NULL,
	breaker_failures INTEGER DEFAULT 0 NOT NULL,
	breaker_open_until BIGINT,
	breaker_probes TEXT DEFAULT '[]' NOT NULL,
	generation BIGINT DEFAULT 0 NOT NULL,
	failure_streak INTEGER DEFAULT 0 NOT NULL,
	last_success_at BIGINT,
	last_failure_at BIGINT,
	query_last_seq BIGINT DEFAULT 0 NOT NULL,
	query_last_at BIGINT,
	query_last_end_at BIGINT,
	query_tokens FLOAT,
	query_tokens_at BIGINT,
	query_in_flight TEXT DEFAULT '[]' NOT NULL,
	grab_last_seq BIGINT DEFAULT 0 NOT NULL,
	grab_last_at BIGINT,
	grab_last_end_at BIGINT,
	grab_tokens FLOAT,
	grab_tokens_at BIGINT,
	grab_in_flight TEXT DEFAULT '[]' NOT NULL,
	learned TEXT DEFAULT '{}' NOT NULL,
	version BIGINT DEFAULT 1 NOT NULL,
	PRIMARY KEY (source_id)
);

CREATE TABLE source_requests (
	source_id BIGINT NOT NULL,
	lane TEXT NOT NULL,
	seq BIGINT NOT NULL,
	at BIGINT NOT NULL,
	expires_at BIGINT NOT NULL,
	consumer TEXT NOT NULL,
	PRIMARY KEY (source_id, lane, seq)
);

CREATE INDEX source_requests_at ON source_requests (at);

CREATE TABLE search_history (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
	search_id BIGINT NOT NULL,
	task BIGINT NOT NULL,
	source TEXT NOT NULL,
	"query" TEXT NOT NULL,
	priority SMALLINT NOT NULL,
	consumer TEXT NOT NULL,
	status TEXT NOT NULL,
	results INTEGER NOT NULL,
	started_at BIGINT NOT NULL,
	took_s FLOAT NOT NULL,
	waited_s FLOAT NOT NULL,
	error TEXT
);

CREATE INDEX search_history_started ON search_history (started_at);

CREATE TABLE search_cache (
	source_id BIGINT NOT NULL,
	"key" TEXT NOT NULL,
	stored_at BIGINT NOT NULL,
	expires_at BIGINT NOT NULL,
	results TEXT NOT NULL,
	PRIMARY KEY (source_id, "key")
);

CREATE INDEX search_cache_expires ON search_cache (expires_at);

CREATE TABLE search_ledger (
	job_id BIGINT NOT NULL,
	source TEXT NOT NULL,
	status TEXT NOT NULL,
	answered_at BIGINT NOT NULL,
	results TEXT DEFAULT '[]' NOT NULL,
	error TEXT,
	PRIMARY KEY (job_id, source)
);

CREATE TABLE gate_links (
	ref TEXT NOT NULL,
	source_id BIGINT NOT NULL,
	link TEXT NOT NULL,
	first_seen_at BIGINT NOT NULL,
	seen_at BIGINT NOT NULL,
	PRIMARY KEY (ref)
);

CREATE INDEX gate_links_seen ON gate_links (seen_at);

CREATE TABLE feed_polls (
	source_id BIGINT NOT NULL,
	fetched TEXT DEFAULT '{}' NOT NULL,
	wanted TEXT DEFAULT '{}' NOT NULL,
	PRIMARY KEY (source_id)
);

CREATE TABLE feed_items (
	source_id BIGINT NOT NULL,
	"key" TEXT NOT NULL,
	sort_at BIGINT NOT NULL,
	rank BIGINT NOT NULL,
	seen_at BIGINT NOT NULL,
	categories TEXT NOT NULL,
	result TEXT NOT NULL,
	PRIMARY KEY (source_id, "key")
);

CREATE INDEX feed_items_newest ON feed_items (source_id, sort_at);

CREATE INDEX feed_items_seen ON feed_items (seen_at);

CREATE TABLE gate_clients (
	name TEXT NOT NULL,
	priority TEXT NOT NULL,
	hold_s FLOAT NOT NULL,
	share FLOAT NOT NULL,
	key_digest TEXT NOT NULL,
	added_at BIGINT NOT NULL,
	PRIMARY KEY (name)
);

CREATE TABLE watchlist_artists (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
	name TEXT NOT NULL,
	sources TEXT DEFAULT '[]' NOT NULL,
	profile TEXT DEFAULT '' NOT NULL,
	targets TEXT DEFAULT '[]' NOT NULL,
	origin TEXT NOT NULL,
	is_paused BOOLEAN DEFAULT 0 NOT NULL,
	next_attempt_at BIGINT NOT NULL,
	last_checked BIGINT,
	last_error TEXT,
	failures INTEGER DEFAULT 0 NOT NULL,
	added_at BIGINT NOT NULL,
	claimed_by TEXT,
	token BIGINT DEFAULT 0 NOT NULL,
	source TEXT NOT NULL,
	artist_id TEXT NOT NULL,
	start TEXT NOT NULL,
	start_on TEXT,
	every_s FLOAT,
	watermark BIGINT,
	retry_block_until BIGINT
);

CREATE UNIQUE INDEX watchlist_artists_artist ON watchlist_artists (source, artist_id);

CREATE INDEX watchlist_artists_claimed ON watchlist_artists (claimed_by, id) WHERE claimed_by IS NOT NULL;

CREATE INDEX watchlist_artists_due ON watchlist_artists (next_attempt_at, id) WHERE NOT is_paused;

CREATE TABLE catalogue_walks (
	source TEXT NOT NULL,
	artist_id TEXT NOT NULL,
	began_at BIGINT NOT NULL,
	walk TEXT NOT NULL,
	PRIMARY KEY (source, artist_id)
);

CREATE TABLE saved_searches (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
	name TEXT NOT NULL,
	sources TEXT DEFAULT '[]' NOT NULL,
	profile TEXT DEFAULT '' NOT NULL,
	targets TEXT DEFAULT '[]' NOT NULL,
	origin TEXT NOT NULL,
	is_paused BOOLEAN DEFAULT 0 NOT NULL,
	next_attempt_at BIGINT NOT NULL,
	last_checked BIGINT,
	last_error TEXT,
	failures INTEGER DEFAULT 0 NOT NULL,
	added_at BIGINT NOT NULL,
	claimed_by TEXT,
	token BIGINT DEFAULT 0 NOT NULL,
	request TEXT NOT NULL,
	every_s FLOAT NOT NULL,
	first_check TEXT NOT NULL,
	answered TEXT DEFAULT '[]' NOT NULL
);

CREATE INDEX saved_searches_claimed ON saved_searches (claimed_by, id) WHERE claimed_by IS NOT NULL;

CREATE INDEX saved_searches_due ON saved_searches (next_attempt_at, id) WHERE NOT is_paused;

CREATE UNIQUE INDEX saved_searches_name ON saved_searches (name);

CREATE TABLE subscriptions (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
	name TEXT NOT NULL,
	sources TEXT DEFAULT '[]' NOT NULL,
	profile TEXT DEFAULT '' NOT NULL,
	targets TEXT DEFAULT '[]' NOT NULL,
	origin TEXT NOT NULL,
	is_paused BOOLEAN DEFAULT 0 NOT NULL,
	next_attempt_at BIGINT NOT NULL,
	last_checked BIGINT,
	last_error TEXT,
	failures INTEGER DEFAULT 0 NOT NULL,
	added_at BIGINT NOT NULL,
	claimed_by TEXT,
	token BIGINT DEFAULT 0 NOT NULL,
	url TEXT NOT NULL,
	has_moved BOOLEAN DEFAULT 0 NOT NULL,
	every_s FLOAT,
	cron TEXT,
	zone TEXT NOT NULL,
	effective_s FLOAT,
	is_adaptive BOOLEAN DEFAULT 0 NOT NULL,
	auto_import BOOLEAN DEFAULT 1 NOT NULL,
	takes_first BOOLEAN DEFAULT 0 NOT NULL,
	accept TEXT DEFAULT '[]' NOT NULL,
	reject TEXT DEFAULT '[]' NOT NULL,
	folder TEXT DEFAULT '[]' NOT NULL,
	paused_because TEXT,
	etag TEXT,
	last_modified TEXT,
	last_success BIGINT,
	written_url TEXT
);

CREATE INDEX subscriptions_claimed ON subscriptions (claimed_by, id) WHERE claimed_by IS NOT NULL;

CREATE INDEX subscriptions_due ON subscriptions (next_attempt_at, id) WHERE NOT is_paused;

CREATE UNIQUE INDEX subscriptions_name ON subscriptions (name);

CREATE TABLE subscription_items (
	subscription_id BIGINT NOT NULL,
	"key" TEXT NOT NULL,
	title TEXT NOT NULL,
	published_at BIGINT,
	seen_at BIGINT NOT NULL,
	gone_at BIGINT,
	PRIMARY KEY (subscription_id, "key")
);

CREATE INDEX subscription_items_gone ON subscription_items (gone_at, subscription_id);

CREATE TABLE subscription_checks (
	id INTEGER NOT NULL,
	subscription_id BIGINT NOT NULL,
	started_at BIGINT NOT NULL,
	status TEXT NOT NULL,
	items_found INTEGER NOT NULL,
	new_items INTEGER NOT NULL,
	duration_ms BIGINT NOT NULL,
	error TEXT,
	PRIMARY KEY (id)
);

CREATE INDEX subscription_checks_of ON subscription_checks (subscription_id, id);

CREATE TABLE intakes (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
	name TEXT NOT NULL,
	sources TEXT DEFAULT '[]' NOT NULL,
	profile TEXT DEFAULT '' NOT NULL,
	targets TEXT DEFAULT '[]' NOT NULL,
	origin TEXT NOT NULL,
	is_paused BOOLEAN DEFAULT 0 NOT NULL,
	next_attempt_at BIGINT NOT NULL,
	last_checked BIGINT,
	last_error TEXT,
	failures INTEGER DEFAULT 0 NOT NULL,
	added_at BIGINT NOT NULL,
	claimed_by TEXT,
	token BIGINT DEFAULT 0 NOT NULL,
	title TEXT NOT NULL,
	year TEXT NOT NULL,
	mintmark TEXT NOT NULL,
	denomination TEXT NOT NULL,
	series TEXT NOT NULL,
	every_s FLOAT NOT NULL,
	currency TEXT NOT NULL,
	below_cents BIGINT,
	above_cents BIGINT
);

CREATE INDEX intakes_claimed ON intakes (claimed_by, id) WHERE claimed_by IS NOT NULL;

CREATE INDEX intakes_due ON intakes (next_attempt_at, id) WHERE NOT is_paused;

CREATE UNIQUE INDEX intakes_name ON intakes (name);

CREATE TABLE price_points (
	intake_id BIGINT NOT NULL,
	source TEXT NOT NULL,
	dedupe_key TEXT NOT NULL,
	title TEXT NOT NULL,
	url TEXT NOT NULL,
	cents BIGINT NOT NULL,
	currency TEXT NOT NULL,
	type TEXT NOT NULL,
	day TEXT NOT NULL,
	external_id TEXT,
	match_strength INTEGER NOT NULL,
	seen_at BIGINT NOT NULL,
	PRIMARY KEY (intake_id, source, dedupe_key)
);

CREATE INDEX price_points_newest ON price_points (intake_id, day, seen_at);

CREATE TABLE valuations (
	intake_id BIGINT NOT NULL,
	cents BIGINT NOT NULL,
	currency TEXT NOT NULL,
	points INTEGER NOT NULL,
	match_strength INTEGER NOT NULL,
	others INTEGER NOT NULL,
	valued_at BIGINT NOT NULL,
	side TEXT NOT NULL,
	PRIMARY KEY (intake_id)
);

CREATE TABLE valuation_history (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
	intake_id BIGINT NOT NULL,
	cents BIGINT NOT NULL,
	currency TEXT NOT NULL,
	points INTEGER NOT NULL,
	match_strength INTEGER NOT NULL,
	others INTEGER NOT NULL,
	valued_at BIGINT NOT NULL,
	side TEXT NOT NULL
);

CREATE INDEX valuation_history_of ON valuation_history (intake_id, id);

CREATE TABLE price_alerts (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
	intake_id BIGINT NOT NULL,
	side TEXT NOT NULL,
	limit_cents BIGINT NOT NULL,
	cents BIGINT NOT NULL,
	currency TEXT NOT NULL,
	raised_at BIGINT NOT NULL
);

CREATE INDEX price_alerts_of ON price_alerts (intake_id, id);

CREATE TABLE wants (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
	"key" TEXT NOT NULL,
	kind TEXT NOT NULL,
	title TEXT NOT NULL,
	artist TEXT NOT NULL,
	watch TEXT NOT NULL,
	state TEXT NOT NULL,
	reason TEXT NOT NULL,
	sources TEXT DEFAULT '[]' NOT NULL,
	profile TEXT DEFAULT '' NOT NULL,
	targets TEXT DEFAULT '[]' NOT NULL,
	facts TEXT DEFAULT '{}' NOT NULL,
	looks INTEGER DEFAULT 0 NOT NULL,
	chosen_ref TEXT,
	found_at BIGINT NOT NULL,
	changed_at BIGINT NOT NULL,
	next_at BIGINT,
	UNIQUE ("key")
);

CREATE INDEX wants_state ON wants (state, id);

CREATE TABLE candidates (
	want_id BIGINT NOT NULL,
	ref TEXT NOT NULL,
	source TEXT NOT NULL,
	result TEXT NOT NULL,
	position INTEGER,
	reasons TEXT NOT NULL,
	merits TEXT NOT NULL,
	failed_because TEXT,
	found_at BIGINT NOT NULL,
	PRIMARY KEY (want_id, ref)
);

CREATE TABLE downloads (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
	want_id BIGINT NOT NULL,
	ref TEXT NOT NULL,
	target TEXT NOT NULL,
	"key" TEXT NOT NULL,
	title TEXT NOT NULL,
	state TEXT NOT NULL,
	reason TEXT NOT NULL,
	asked INTEGER DEFAULT 0 NOT NULL,
	sent INTEGER DEFAULT 0 NOT NULL,
	facts TEXT DEFAULT '{}' NOT NULL,
	target_id TEXT,
	created_at BIGINT NOT NULL,
	changed_at BIGINT NOT NULL,
	next_at BIGINT,
	claimed_by TEXT,
	token BIGINT DEFAULT 0 NOT NULL,
	UNIQUE ("key")
);

CREATE INDEX downloads_claimed ON downloads (claimed_by, id) WHERE claimed_by IS NOT NULL;

CREATE INDEX downloads_tracked ON downloads (next_at, id) WHERE state = 'handed over';

CREATE UNIQUE INDEX downloads_want ON downloads (want_id) WHERE state <> 'failed';

INSERT INTO migrations (version, name, min_code_version, applied_at) VALUES (1, 'initial', 1, 0);
