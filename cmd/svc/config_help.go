package main

// variableHelp describes each environment variable of [Config]. `svc config` prints it.
var variableHelp = map[string]string{
	"SVC_ENV": "sandbox or production; svc dev is always a sandbox",
	"SVC_LISTEN": "address of the HTTP listener; defaults: api and dev 127.0.0.1:8080, dashboard 127.0.0.1:8081, " +
		"rail 127.0.0.1:8082, worker none",
	"SVC_OPS_LISTEN": "a separate address for /livez, /readyz and /metrics (api, worker, dashboard, dev)",
	"SVC_TRUSTED_PROXIES": "addresses or CIDR prefixes of the proxies in front, comma-separated: X-Forwarded-For " +
		"and Forwarded are trusted from these only",
	"SVC_PUBLIC_BASE_URL": "the service's URL for partners and customers, without a path; sandbox default: " +
		"http://SVC_LISTEN, or the machine's own address in its network if that is 0.0.0.0",
	"SVC_DATABASE_URL": "postgres:// URL; svc dev starts a private server without it",
	"SVC_DATABASE_POOLER": "transaction: SVC_DATABASE_URL leads to a pooler in transaction mode, such as " +
		"PgBouncer; or off",
	"SVC_DATABASE_READ_URL": "postgres:// URL of a standby that serves pages and CSV (api, dashboard, dev), " +
		"without a pooler; the primary serves them without it, and while the standby is down or behind",
	"SVC_REDIS_URL":       "URL of a server, of Sentinels or of a Cluster; svc dev starts a private server without it",
	"SVC_MASTER_KEY":      "keyring for stored secrets: id:base64 of 32 bytes, comma-separated; the first key encrypts",
	"SVC_MASTER_KEY_FILE": "file that contains the keyring instead of SVC_MASTER_KEY",
	"SVC_DATA_DIR":        "data folder of svc dev",
	"SVC_DEV_WORKER":      "off: svc dev runs no worker",

	"SVC_LOG_LEVEL":  "DEBUG, INFO, WARN or ERROR",
	"SVC_LOG_FORMAT": "json or text; svc dev logs text",
	"SVC_OTLP_URL":   "OTLP/HTTP collector for spans, such as http://localhost:4318; without it, no spans are sent",
	"SVC_OTLP_RATIO": "share of traces that are sent, above 0 to 1; the same for all processes",

	"SVC_RATE_LIMIT": "requests per second of an API client, or off; the burst is twice that. The token endpoint " +
		"allows a client a tenth, and each process allows an address the whole rate",
	"SVC_BATCH_RATE_LIMIT": "batches submitted, validated or retried per second and API client, or off",

	"SVC_QUOTA_OPEN_ROWS": "unsettled batch rows of an organisation, or off",
	"SVC_QUOTA_EVENTS": "stored webhook events and open payment intents of an organisation, above which it gets no " +
		"new payment intents, or off",
	"SVC_QUOTA_INVITATIONS": "open invitations of an organisation, or off",
	"SVC_QUOTA_ENDPOINTS":   "webhook endpoints of an organisation, or off",

	"SVC_ALLOW_PLAIN": "connections that production may make without TLS: postgres, redis, rail, issuer; " +
		"comma-separated",
	"SVC_REDIS_CA_FILE":      "certificate authorities of Redis, PEM; without it, those of the system",
	"SVC_REDIS_CERT_FILE":    "client certificate for Redis, PEM",
	"SVC_REDIS_KEY_FILE":     "key of SVC_REDIS_CERT_FILE, PEM",
	"SVC_RAIL_TLS_CA_FILE":   "certificate authorities of the gateway, PEM; without it, those of the system",
	"SVC_RAIL_TLS_CERT_FILE": "client certificate for the gateway, PEM",
	"SVC_RAIL_TLS_KEY_FILE":  "key of SVC_RAIL_TLS_CERT_FILE, PEM",

	"SVC_RETENTION_PAYMENTS":     "days for which final payment intents are kept",
	"SVC_RETENTION_WEBHOOKS":     "days for which ended webhook events are kept",
	"SVC_RETENTION_LINKS":        "days for which a revoked link keeps its customer and agreement",
	"SVC_RETENTION_ALERTS":       "days for which closed alerts are kept",
	"SVC_RETENTION_SANDBOX_RAIL": "days for which the sandbox rail keeps the keys of decided debits",

	"SVC_ISSUER_URL":      "outside issuer of access tokens; set all three SVC_ISSUER_ variables or none",
	"SVC_ISSUER_JWKS_URL": "key set of the outside issuer",
	"SVC_ISSUER_AUDIENCE": "audience that tokens of the outside issuer must have",

	"SVC_APP_LINK": "deep link into the customer app, with {path}",

	"SVC_DATABASE_CONNS": "connections in each PostgreSQL pool",
	"SVC_DATABASE_QUEUE": "API requests that may wait for a connection; further requests get 503",
	"SVC_API_CONCURRENCY": "requests that an API process runs concurrently; twice SVC_DATABASE_CONNS keeps the " +
		"connections busy",
	"SVC_API_QUEUE_WAIT": "maximum wait for a slot; a request that would wait longer gets 503 at once",
	"SVC_API_ADDRESS_CONNS": "connections of a peer address to an API process; 0: no limit, because behind a proxy " +
		"all clients have the proxy's address",
	"SVC_CONCURRENCY": "tasks of debits and sweeps that a worker runs concurrently; most wait for rail calls",
	"SVC_IN_FLIGHT": "tasks in flight per organisation; 0: for debits half of the fleet's SVC_CONCURRENCY, " +
		"otherwise 16",
	"SVC_SHUTDOWN_WITHIN": "time for open requests and tasks to end during a shutdown, in every process",

	"SVC_WEBHOOK_RETRIES":      "delays after the first, second, … failed delivery; 1 to 5 durations",
	"SVC_WEBHOOK_LOOPBACK":     "on: webhooks may go to loopback addresses; sandbox only, always on in svc dev",
	"SVC_WEBHOOK_JITTER":       "jitter of each delay in both directions, 0 to 0.5",
	"SVC_CHECKOUT_CONCURRENCY": "payments that a worker runs concurrently",
	"SVC_WEBHOOK_CONCURRENCY":  "webhooks that a worker sends concurrently",

	"SVC_RAIL":             "sandbox or http; always http in production",
	"SVC_RAIL_ID":          "name of the rail behind SVC_RAIL_URL; the database remembers it and refuses another",
	"SVC_RAIL_URL":         "base URL of the payment gateway",
	"SVC_RAIL_KEY":         "id:secret that signs gateway requests; for svc rail, the key that it accepts",
	"SVC_RAIL_CONCURRENCY": "concurrent gateway calls of a worker",
	"SVC_RAIL_RATE":        "gateway requests per second of the whole fleet; 0: no limit",

	"SVC_OPERATOR": "operator whom the audit log names for svc admin and svc migrate; default: the account's name",

	"SVC_OPERATORS_FILE": "file with the operators' logins for /ops: lines of name:hash:role, as svc admin " +
		"operator hash prints",
	"SVC_OPS_USERNAME": "name of a further operator's login for /ops",
	"SVC_OPS_PASSWORD": "that operator's password, at most 72 bytes",
	"SVC_OPS_ROLE": "that operator's role: look (read everything) or act (also perform acts); " +
		"svc dev with a password of its own: act",
}
