package main

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"partnerbilling/models"
)

// faultKind is a kind of fault that a chaos run injects.
type faultKind string

// The kinds of fault.
const (
	killWorker      faultKind = "killWorker"      // kill -9
	killAPI         faultKind = "killAPI"         // kill -9
	killRail        faultKind = "killRail"        // kill -9
	pauseWorker     faultKind = "pauseWorker"     // SIGSTOP, then SIGCONT before row leases expire
	pauseWorkerLong faultKind = "pauseWorkerLong" // SIGCONT only after row leases have expired
	pauseAPI        faultKind = "pauseAPI"
	pauseRail       faultKind = "pauseRail"
	flushRedis      faultKind = "flushRedis"      // FLUSHALL
	restartRedis    faultKind = "restartRedis"    // kill -9; it restarts without data
	restartPostgres faultKind = "restartPostgres" // immediate shutdown, then crash recovery
	cutWire         faultKind = "cutWire"         // connections close, new ones are refused
	tearWire        faultKind = "tearWire"        // connections close within a message
	hangWire        faultKind = "hangWire"        // connections are accepted and carry nothing
	slowWire        faultKind = "slowWire"        // every message is late
	// freezeWire: all connections carry nothing for longer than all time-outs, and then resume.
	freezeWire      faultKind = "freezeWire"
	freezeOpen      faultKind = "freezeOpen"      // like freezeWire, but new connections work
	loseAnswers     faultKind = "loseAnswers"     // the rail debits and does not answer
	bankUnavailable faultKind = "bankUnavailable" // the rail is unavailable, or loses the request
	// duplicateTasks: tasks in flight, and old ones, are enqueued again under other task ids.
	duplicateTasks faultKind = "duplicateTasks"
	dueAgain       faultKind = "dueAgain"  // tasks in flight are made due again
	stepClock      faultKind = "stepClock" // the service's clock jumps forward
)

// fault is one scheduled fault. Number counts from 1. At is the time since the start of the run.
// For is the duration of the fault; both are nanoseconds in JSON. Target names a process, a wire
// or a server. faultSpecs explains Amount.
type fault struct {
	Number int           `json:"number"`
	At     time.Duration `json:"at"`
	Kind   faultKind     `json:"kind"`
	Target string        `json:"target"`
	For    time.Duration `json:"for,omitzero"`
	Amount int64         `json:"amount,omitzero"`
}

func (f fault) String() string {
	text := fmt.Sprintf("%4d  %8.3fs  %-15s %s", f.Number, f.At.Seconds(), f.Kind, f.Target)
	if f.For > 0 {
		text += fmt.Sprintf(" for %s", f.For)
	}
	if f.Amount > 0 {
		text += fmt.Sprintf(", %d", f.Amount)
	}
	return text
}

// wireNames lists the wires that faults disturb: TCP proxies on the way from one process to
// another. A name that begins with "workers/" stands for the wires of all workers at once.
var wireNames = []string{
	"worker-1/postgres", "worker-2/postgres", "worker-3/postgres", "workers/postgres",
	"worker-1/redis", "worker-2/redis", "worker-3/redis", "workers/redis",
	"worker-1/rail", "worker-2/rail", "worker-3/rail", "workers/rail",
	"api/postgres", "api/redis", "rail/postgres", "partners/api",
}

// serverWires lists the names of the wires to Postgres and Redis.
var serverWires = slices.DeleteFunc(slices.Clone(wireNames), func(name string) bool {
	return !strings.HasSuffix(name, "/postgres") && !strings.HasSuffix(name, "/redis")
})

// faultSpec specifies the faults of a kind. A fault's target is drawn from targets, its duration
// and its amount between their bounds.
type faultSpec struct {
	kind                 faultKind
	targets              []string
	minFor, maxFor       time.Duration
	minAmount, maxAmount int64
}

var (
	workerNames = []string{"worker-1", "worker-2", "worker-3"}
	onlyAPI     = []string{"api"}
	onlyRail    = []string{"rail"}
)

// faultSpecs lists all kinds. The meaning of an amount depends on the kind:
//   - tearWire: the number of bytes after which a connection closes
//   - slowWire: the delay in milliseconds
//   - loseAnswers, bankUnavailable: the percentage of calls
//   - duplicateTasks, dueAgain: the maximum number of tasks
//   - stepClock: the step in milliseconds
var faultSpecs = []faultSpec{
	{kind: killWorker, targets: workerNames, minFor: 0, maxFor: 3 * time.Second},
	{kind: killAPI, targets: onlyAPI, minFor: 0, maxFor: 2 * time.Second},
	{kind: killRail, targets: onlyRail, minFor: 0, maxFor: 2 * time.Second},
	{kind: pauseWorker, targets: workerNames, minFor: 500 * time.Millisecond, maxFor: 8 * time.Second},
	{kind: pauseWorkerLong, targets: workerNames, minFor: 16 * time.Second, maxFor: 20 * time.Second},
	{kind: pauseAPI, targets: onlyAPI, minFor: 500 * time.Millisecond, maxFor: 3 * time.Second},
	{kind: pauseRail, targets: onlyRail, minFor: 500 * time.Millisecond, maxFor: 3 * time.Second},
	{kind: flushRedis, targets: []string{"redis"}},
	{kind: restartRedis, targets: []string{"redis"}, minFor: 0, maxFor: time.Second},
	{kind: restartPostgres, targets: []string{"postgres"}, minFor: 0, maxFor: time.Second},
	{kind: cutWire, targets: wireNames, minFor: 100 * time.Millisecond, maxFor: 4 * time.Second},
	{kind: tearWire, targets: wireNames,
		minFor: time.Second, maxFor: 3 * time.Second, minAmount: 200, maxAmount: 20_000},
	{kind: hangWire, targets: wireNames, minFor: 500 * time.Millisecond, maxFor: 6 * time.Second},
	{kind: slowWire, targets: wireNames,
		minFor: time.Second, maxFor: 5 * time.Second, minAmount: 5, maxAmount: 200},
	{kind: freezeWire, targets: serverWires, minFor: 22 * time.Second, maxFor: 30 * time.Second},
	{kind: freezeOpen, targets: serverWires, minFor: 22 * time.Second, maxFor: 30 * time.Second},
	{kind: loseAnswers, targets: onlyRail,
		minFor: 500 * time.Millisecond, maxFor: 4 * time.Second, minAmount: 10, maxAmount: 100},
	{kind: bankUnavailable, targets: onlyRail,
		minFor: 500 * time.Millisecond, maxFor: 3 * time.Second, minAmount: 10, maxAmount: 100},
	{kind: duplicateTasks, targets: []string{"redis"}, minAmount: 16, maxAmount: 128},
	{kind: dueAgain, targets: []string{"postgres"}, minAmount: 16, maxAmount: 128},
	{kind: stepClock, targets: []string{"clock"}, minAmount: 1000, maxAmount: 30 * 60_000},
}

// Large clock steps, in milliseconds. closingStep crosses the end of the time in which a batch may
// debit. deadlineStep crosses the deadline of a batch.
const (
	closingStep  = int64((models.SettleWithin - models.LastAttemptBefore/2) / time.Millisecond)
	deadlineStep = int64((models.SettleWithin + time.Minute) / time.Millisecond)
	// largeStepOdds is the mean number of clock steps per large one.
	largeStepOdds = 6
	// maxTotalStep bounds the sum of all steps of a run, since batches are deleted after their
	// retention.
	maxTotalStep = int64((models.BatchRetention - 10*24*time.Hour) / time.Millisecond)
)

// chaosSchedule draws n faults from a seed, one in each interval, of the named kinds or of all. The
// kinds come in shuffled rounds, so that their numbers differ by at most one. The same arguments
// return the same schedule.
func chaosSchedule(seed uint64, kinds []string, n int, interval time.Duration) ([]fault, error) {
	specs, err := chosenSpecs(kinds)
	if err != nil {
		return nil, err
	}
	random := rand.New(rand.NewPCG(seed, 0)) // repeatable on purpose
	var steps int64
	faults := make([]fault, 0, n)
	var round []int
	for i := range n {
		if len(round) == 0 {
			round = random.Perm(len(specs))
		}
		f := specs[round[0]].draw(random)
		round = round[1:]
		f.Number = i + 1
		f.At = (time.Duration(i)*interval + between(random, 0, interval)).Truncate(time.Millisecond)
		if f.Kind == stepClock {
			f.Amount = clockStep(random, f.Amount, maxTotalStep-steps)
			steps += f.Amount
		}
		faults = append(faults, f)
	}
	return faults, nil
}

// chosenSpecs returns the specs of the named kinds; all specs without names.
func chosenSpecs(kinds []string) ([]faultSpec, error) {
	if len(kinds) == 0 {
		return faultSpecs, nil
	}
	var chosen []faultSpec
	for _, kind := range kinds {
		i := slices.IndexFunc(faultSpecs, func(s faultSpec) bool { return s.kind == faultKind(kind) })
		if i < 0 {
			return nil, fmt.Errorf("--kinds: there is no kind %q; there are %s", kind,
				strings.Join(faultKindNames(), ", "))
		}
		chosen = append(chosen, faultSpecs[i])
	}
	return chosen, nil
}

func faultKindNames() []string {
	var names []string
	for _, s := range faultSpecs {
		names = append(names, string(s.kind))
	}
	return names
}

// draw draws a fault of the kind, without its number and time.
func (s faultSpec) draw(random *rand.Rand) fault {
	f := fault{
		Kind: s.kind, Target: s.targets[random.IntN(len(s.targets))],
		For: between(random, s.minFor, s.maxFor).Truncate(time.Millisecond), Amount: s.minAmount,
	}
	if s.maxAmount > s.minAmount {
		f.Amount += random.Int64N(s.maxAmount - s.minAmount)
	}
	return f
}

// between draws a duration from shortest to longest, exclusive. It returns shortest if longest is
// not greater.
func between(random *rand.Rand, shortest, longest time.Duration) time.Duration {
	if longest <= shortest {
		return shortest
	}
	return shortest + time.Duration(random.Int64N(int64(longest-shortest)))
}

// clockStep returns the small step or, at random, a large one. The step is at most limit. All are
// in milliseconds.
func clockStep(random *rand.Rand, small, limit int64) int64 {
	large := []int64{closingStep, deadlineStep}[random.IntN(2)]
	if random.IntN(largeStepOdds) == 0 && large <= limit {
		return large
	}
	return min(small, limit)
}
