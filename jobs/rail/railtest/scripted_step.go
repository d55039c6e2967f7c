package railtest

import "partnerbilling/jobs/rail"

// Step is the effect of one debit call on a Scripted rail. The zero Step is Succeed.
type Step struct {
	kind   stepKind
	reason rail.Reason
}

// stepKind is the kind of a Step.
type stepKind int

const (
	stepSucceed stepKind = iota
	stepRefuse
	stepUnavailable
	stepLoseAnswer
	stepLoseRequest
	stepHang
	stepInvalid
)

// The steps without a parameter. Refuse returns the others.
var (
	// Succeed debits and answers Succeeded.
	Succeed = Step{kind: stepSucceed}
	// Unavailable answers Unavailable. Nothing is debited or recorded.
	Unavailable = Step{kind: stepUnavailable}
	// LoseAnswer debits and answers Unknown.
	LoseAnswer = Step{kind: stepLoseAnswer}
	// LoseRequest answers Unknown. Nothing is debited or recorded.
	LoseRequest = Step{kind: stepLoseRequest}
	// Hang holds the call until Release, which continues with the next step of the script. If the
	// context of the call ends before that, the answer is Unknown. The debit still arrives with
	// Release, unless the key was cancelled meanwhile.
	Hang = Step{kind: stepHang}
	// Invalid answers Invalid. Nothing is debited or recorded. Unlike other steps, it also applies
	// to a key with a final result.
	Invalid = Step{kind: stepInvalid}
)

// Refuse returns the step that records a refusal with the reason and answers it.
func Refuse(reason rail.Reason) Step { return Step{kind: stepRefuse, reason: reason} }

// nextStep returns the next step of the debit's script, and uses it up.
func (s *Scripted) nextStep(d rail.Debit) Step {
	steps, set := s.script(d)
	step, left := s.first(steps)
	set(left)
	return step
}

// peekStep returns the next step of the debit's script.
func (s *Scripted) peekStep(d rail.Debit) Step {
	steps, _ := s.script(d)
	step, _ := s.first(steps)
	return step
}

// script returns the remaining steps of the debit's script, and a function that replaces them. A
// script of the key takes precedence over that of the agreement. The agreement's script starts anew
// for each key.
func (s *Scripted) script(d rail.Debit) (steps []Step, set func([]Step)) {
	if steps, own := s.scripts[d.Key]; own {
		return steps, func(left []Step) { s.scripts[d.Key] = left }
	}
	id := [2]string{d.Key, d.AgreementID}
	steps, begun := s.started[id]
	if !begun {
		steps = s.scripts[d.AgreementID]
	}
	return steps, func(left []Step) { s.started[id] = left }
}

// first returns the first step and the steps after it. Without steps, it returns the default step.
func (s *Scripted) first(steps []Step) (step Step, left []Step) {
	if len(steps) == 0 {
		return s.fallback, nil
	}
	return steps[0], steps[1:]
}
