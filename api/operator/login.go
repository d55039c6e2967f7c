package operator

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"log/slog"
	"net/http"
	"strconv"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/crypto/bcrypt"

	"partnerbilling/api/peer"
	"partnerbilling/models/coalesce"
)

const (
	// rememberFor is the time for which accepted credentials are not verified again.
	rememberFor = time.Minute
	// rememberSize is the maximum number of remembered credentials.
	rememberSize = 1000
	// maxHashing bounds the concurrent verifications, each of which keeps a processor busy.
	maxHashing = 2
	// attemptTimeout bounds one attempt. It is many times the duration of a verification.
	attemptTimeout = 5 * time.Second
	// busyRetryAfter is the Retry-After if no processor becomes free within attemptTimeout.
	busyRetryAfter = time.Second
)

// Config configures a Login.
type Config struct {
	Accounts Accounts         // at least one
	Proxies  peer.Proxies     // trusted to name the address of a browser
	Now      func() time.Time // real time
	Log      *slog.Logger
	Metrics  *prometheus.Registry // registers the counter of attempts
}

// Login authenticates operators. It remembers accepted credentials, and accepts them again without
// verification for rememberFor. It is safe for concurrent use.
type Login struct {
	cfg      Config
	decoy    func() []byte // the hash of some account, for attempts with unknown names
	key      []byte        // keys the digests of credentials in memory
	accepted *lru.Cache[[sha256.Size]byte, time.Time]
	throttle *throttle
	hashing  chan struct{} // semaphore
	attempts coalesce.SingleFlight[verdict]
	outcomes *prometheus.CounterVec
}

// outcome is the result of an attempt, as the metric counts it.
type outcome string

const (
	outcomeAccepted  outcome = "accepted"
	outcomeRefused   outcome = "refused"
	outcomeThrottled outcome = "throttled"
	outcomeBusy      outcome = "busy" // no processor became free within attemptTimeout
)

// New returns a login for the accounts, of which there must be at least one.
func New(cfg Config) (*Login, error) {
	if len(cfg.Accounts) == 0 {
		return nil, errors.New("operator: there is no account")
	}
	accepted, err := lru.New[[sha256.Size]byte, time.Time](rememberSize)
	if err != nil {
		return nil, err
	}
	l := &Login{
		cfg: cfg, key: []byte(rand.Text()), accepted: accepted, throttle: newThrottle(),
		hashing:  make(chan struct{}, maxHashing),
		attempts: coalesce.SingleFlight[verdict]{Timeout: attemptTimeout},
		outcomes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "svc_operator_logins_total",
			Help: "Attempts to log in as an operator, by outcome: accepted, refused, throttled (too many attempts), " +
				"busy (no processor was free). Remembered logins do not count.",
		}, []string{"outcome"}),
	}
	for _, account := range cfg.Accounts {
		l.decoy = account.hash
		break
	}
	for _, o := range []outcome{outcomeAccepted, outcomeRefused, outcomeThrottled, outcomeBusy} {
		l.outcomes.WithLabelValues(string(o))
	}
	cfg.Metrics.MustRegister(l.outcomes)
	return l, nil
}

// Operator is an operator who has logged in.
type Operator struct {
	Name    string
	Role    Role
	Address string // of the browser; "invalid IP" if it is unknown
}

// MayAct reports whether the operator may change state.
func (o Operator) MayAct() bool { return o.Role == RoleAct }

// Admit returns the operator that the credentials of a request belong to. If ok is false, Admit has
// answered the request. It answers 401 without valid credentials, and 429 after too many attempts
// or if no processor becomes free for the verification. It answers 503 if the request ends first,
// or if the verification panics.
func (l *Login) Admit(w http.ResponseWriter, r *http.Request) (o Operator, ok bool) {
	name, password, ok := r.BasicAuth()
	if !ok {
		challenge(w)
		return o, false
	}
	o = Operator{name, l.cfg.Accounts[name].Role, l.cfg.Proxies.ClientOf(r).String()}
	return o, l.admit(w, r, o, password)
}

// admit reports whether the credentials are right, and answers the request if they are not.
func (l *Login) admit(w http.ResponseWriter, r *http.Request, o Operator, password string) bool {
	name, address := o.Name, o.Address
	digest := l.digest(name, password)
	if at, ok := l.accepted.Get(digest); ok && l.cfg.Now().Sub(at) < rememberFor {
		return true
	}
	// A page sends several requests at once: they are one attempt.
	v, err := l.attempts.Do(r.Context(), address+"\x00"+string(digest[:]), func(ctx context.Context) (verdict, error) {
		return l.attempt(ctx, address, name, password, digest), nil
	})
	if err != nil {
		if r.Context().Err() == nil { // a panic
			l.cfg.Log.ErrorContext(r.Context(), "cannot verify a login", "error", err)
		}
		http.Error(w, "The login was not verified.", http.StatusServiceUnavailable)
		return false
	}
	switch v.outcome {
	case outcomeAccepted:
		return true
	case outcomeThrottled, outcomeBusy:
		w.Header().Set("Retry-After", strconv.Itoa(int(v.retryAfter/time.Second)))
		http.Error(w, "Too many attempts, or too busy. Try again later.", http.StatusTooManyRequests)
	default:
		challenge(w)
	}
	return false
}

// verdict is the result of an attempt. Only throttled and busy have a retryAfter.
type verdict struct {
	outcome    outcome
	retryAfter time.Duration
}

// attempt verifies credentials, and logs and counts the outcome. Several requests may wait for it.
func (l *Login) attempt(
	ctx context.Context, address, name, password string, digest [sha256.Size]byte,
) verdict {
	v := verdict{outcome: outcomeThrottled}
	if v.retryAfter = l.throttle.take(l.cfg.Now(), address, name[:min(len(name), maxName)]); v.retryAfter == 0 {
		v = l.verify(ctx, name, password)
	}
	if v.outcome == outcomeAccepted {
		l.accepted.Add(digest, l.cfg.Now())
	}
	l.outcomes.WithLabelValues(string(v.outcome)).Inc()
	known := "" // an unknown name may be a password in the wrong field
	if _, ok := l.cfg.Accounts[name]; ok {
		known = name
	}
	level := slog.LevelWarn
	if v.outcome == outcomeAccepted {
		level = slog.LevelInfo
	}
	l.cfg.Log.Log(ctx, level, "operator login", "outcome", string(v.outcome), "operator", known,
		"address", address)
	return v
}

// verify compares a password with that of an account. It takes the same time for each name, known
// or not, except that the first call for a plain password also hashes that password. If no
// processor becomes free before ctx ends, the outcome is busy: the password may be right.
func (l *Login) verify(ctx context.Context, name, password string) verdict {
	select {
	case l.hashing <- struct{}{}:
		defer func() { <-l.hashing }()
	case <-ctx.Done():
		return verdict{outcomeBusy, busyRetryAfter}
	}
	account, known := l.cfg.Accounts[name]
	hash := account.hash
	if !known {
		hash = l.decoy
	}
	matches := bcrypt.CompareHashAndPassword(hash(), []byte(password)) == nil
	if matches && known {
		return verdict{outcome: outcomeAccepted}
	}
	return verdict{outcome: outcomeRefused}
}

// digest identifies credentials in memory without keeping the password.
func (l *Login) digest(name, password string) (digest [sha256.Size]byte) {
	mac := hmac.New(sha256.New, l.key)
	mac.Write([]byte(strconv.Itoa(len(name)) + ":" + name + password))
	copy(digest[:], mac.Sum(nil))
	return digest
}

func challenge(w http.ResponseWriter) {
	w.Header().Set("WWW-Authenticate", `Basic realm="operator", charset="UTF-8"`)
	http.Error(w, "The operator's login is required.", http.StatusUnauthorized)
}
