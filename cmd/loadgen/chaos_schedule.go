package main

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// faultKind is a way to break something.
type faultKind string

// The kinds of fault.
const (
	killWorker      faultKind = "killWorker"      // kill -9
	killAPI         faultKind = "killAPI"         // kill -9
	killRail        faultKind = "killRail"        // kill -9
	pauseWorker     faultKind = "pauseWorker"     // SIGSTOP, then SIGCONT within its leases
	pauseWorkerLong faultKind = "pauseWorkerLong" // SIGCONT only after its leases have run out
	pauseAPI        faultKind = "pauseAPI"
	pauseRail       faultKind = "pauseRail"
	flushRedis      faultKind = "flushRedis"      // FLUSHALL
	restartRedis    faultKind = "restartRedis"    // kill -9; it comes back with an empty memory
	restartPostgres faultKind = "restartPostgres" // an immediate shutdown; it comes back by recovery
	cutWire         faultKind = "cutWire"         // connections end, new ones are refused
	tearWire        faultKind = "tearWire"        // connections end in the middle of what they carry
	hangWire        faultKind = "hangWire"        // connections are taken, and nothing comes through
	slowWire        faultKind = "slowWire"        // everything comes late
	freezeWire      faultKind = "freezeWire"      // open and new connections carry nothing, for longer than all deadlines, and then go on
	freezeOpen      faultKind = "freezeOpen"      // the same of the connections that are open; new ones work
	loseAnswers     faultKind = "loseAnswers"     // the rail debits and does not say so
	bankUnavailable faultKind = "bankUnavailable" // the rail refuses for now, or loses the request
	duplicateTasks  faultKind = "duplicateTasks"  // tasks in flight, and old ones, are delivered again under other names
	dueAgain        faultKind = "dueAgain"        // tasks in flight are made due again
	stepClock       faultKind = "stepClock"       // the service's time moves forward
)

// fault is one thing that breaks, and how.
type fault struct {
	Number int           `json:"number"`
	At     time.Duration `json:"at"` // since the faults began
	Kind   faultKind     `json:"kind"`
	Target string        `json:"target"`
	For    time.Duration `json:"for,omitzero"` // until it is mended
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

// wireNames are the wires that can be broken; those of the workers also all at once.
var wireNames = []string{
	"worker-1/postgres", "worker-2/postgres", "worker-3/postgres", "workers/postgres",
	"worker-1/redis", "worker-2/redis", "worker-3/redis", "workers/redis",
	"worker-1/rail", "worker-2/rail", "worker-3/rail", "workers/rail",
	"api/postgres", "api/redis", "rail/postgres", "partners/api",
}

// serverWires are those of wireNames that lead to Postgres and Redis.
var serverWires = slices.DeleteFunc(slices.Clone(wireNames), func(name string) bool {
	return !strings.HasSuffix(name, "/postgres") && !strings.HasSuffix(name, "/redis")
})

// faultShape is what faults of a kind have in common. Times and amounts are drawn from their bounds.
type faultShape struct {
	kind             faultKind
	targets          []string
	shortest, longer time.Duration
	least, most      int64
}

var (
	workerNames = []string{"worker-1", "worker-2", "worker-3"}
	onlyAPI     = []string{"api"}
	onlyRail    = []string{"rail"}
)

// faultShapes are all kinds. Amounts are what the kind needs: bytes, milliseconds, per cent, tasks.
var faultShapes = []faultShape{
	{kind: killWorker, targets: workerNames, shortest: 0, longer: 3 * time.Second},
	{kind: killAPI, targets: onlyAPI, shortest: 0, longer: 2 * time.Second},
	{kind: killRail, targets: onlyRail, shortest: 0, longer: 2 * time.Second},
	{kind: pauseWorker, targets: workerNames, shortest: 500 * time.Millisecond, longer: 8 * time.Second},
	{kind: pauseWorkerLong, targets: workerNames, shortest: 16 * time.Second, longer: 20 * time.Second},
	{kind: pauseAPI, targets: onlyAPI, shortest: 500 * time.Millisecond, longer: 3 * time.Second},
	{kind: pauseRail, targets: onlyRail, shortest: 500 * time.Millisecond, longer: 3 * time.Second},
	{kind: flushRedis, targets: []string{"redis"}},
	{kind: restartRedis, targets: []string{"redis"}, shortest: 0, longer: time.Second},
	{kind: restartPostgres, targets: []string{"postgres"}, shortest: 0, longer: time.Second},
	{kind: cutWire, targets: wireNames, shortest: 100 * time.Millisecond, longer: 4 * time.Second},
	{kind: tearWire, targets: wireNames, shortest: time.Second, longer: 3 * time.Second, least: 200, most: 20_000},
	{kind: hangWire, targets: wireNames, shortest: 500 * time.Millisecond, longer: 6 * time.Second},
	{kind: slowWire, targets: wireNames, shortest: time.Second, longer: 5 * time.Second, least: 5, most: 200},
	{kind: freezeWire, targets: serverWires, shortest: 22 * time.Second, longer: 30 * time.Second},
	{kind: freezeOpen, targets: serverWires, shortest: 22 * time.Second, longer: 30 * time.Second},
	{kind: loseAnswers, targets: onlyRail, shortest: 500 * time.Millisecond, longer: 4 * time.Second, least: 10, most: 100},
	{kind: bankUnavailable, targets: onlyRail, shortest: 500 * time.Millisecond, longer: 3 * time.Second, least: 10, most: 100},
	{kind: duplicateTasks, targets: []string{"redis"}, least: 16, most: 128},
	{kind: dueAgain, targets: []string{"postgres"}, least: 16, most: 128},
	{kind: stepClock, targets: []string{"clock"}, least: 1000, most: 30 * 60_000},
}

// A clock step may also cross the time in which batches are only closed, or their deadline.
const (
	closingStep  = int64(23*time.Hour+45*time.Minute) / int64(time.Millisecond)
	deadlineStep = int64(24*time.Hour+time.Minute) / int64(time.Millisecond)
	// bigStepEvery is how many clock steps there are to a big one.
	bigStepEvery = 6
	// mostSteps bounds all steps of a run together: batches are kept for 90 days.
	mostSteps = int64(80*24*time.Hour) / int64(time.Millisecond)
)

// chaosSchedule draws n faults from a seed, one about every so often. The kinds come in shuffled rounds, so that their
// numbers differ by one at the most. The same arguments make the same schedule.
func chaosSchedule(seed uint64, kinds []string, n int, every time.Duration) ([]fault, error) {
	shapes, err := chosenShapes(kinds)
	if err != nil {
		return nil, err
	}
	random := rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // repeatable on purpose
	var steps int64
	faults := make([]fault, 0, n)
	var round []int
	for i := range n {
		if len(round) == 0 {
			round = random.Perm(len(shapes))
		}
		f := shapes[round[0]].draw(random)
		round = round[1:]
		f.Number = i + 1
		f.At = (time.Duration(i)*every + between(random, 0, every)).Truncate(time.Millisecond)
		if f.Kind == stepClock {
			f.Amount = clockStep(random, f.Amount, mostSteps-steps)
			steps += f.Amount
		}
		faults = append(faults, f)
	}
	return faults, nil
}

func chosenShapes(kinds []string) ([]faultShape, error) {
	if len(kinds) == 0 {
		return faultShapes, nil
	}
	var chosen []faultShape
	for _, kind := range kinds {
		i := slices.IndexFunc(faultShapes, func(s faultShape) bool { return s.kind == faultKind(kind) })
		if i < 0 {
			return nil, fmt.Errorf("--kinds: there is no kind %q; there are %s", kind, strings.Join(faultKindNames(), ", "))
		}
		chosen = append(chosen, faultShapes[i])
	}
	return chosen, nil
}

func faultKindNames() []string {
	var names []string
	for _, s := range faultShapes {
		names = append(names, string(s.kind))
	}
	return names
}

func (s faultShape) draw(random *rand.Rand) fault {
	f := fault{
		Kind: s.kind, Target: s.targets[random.IntN(len(s.targets))],
		For: between(random, s.shortest, s.longer).Truncate(time.Millisecond), Amount: s.least,
	}
	if s.most > s.least {
		f.Amount += random.Int64N(s.most - s.least)
	}
	return f
}

func between(random *rand.Rand, least, most time.Duration) time.Duration {
	if most <= least {
		return least
	}
	return least + time.Duration(random.Int64N(int64(most-least)))
}

// clockStep makes some steps big ones, as long as there is room for one.
func clockStep(random *rand.Rand, small, room int64) int64 {
	big := []int64{closingStep, deadlineStep}[random.IntN(2)]
	if random.IntN(bigStepEvery) == 0 && big <= room {
		return big
	}
	return min(small, room)
}
