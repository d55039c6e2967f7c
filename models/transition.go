package models

import "slices"

// transitions holds the allowed transitions of a state machine: the states that each state may
// become. Staying in a state is not a transition. A trigger of the entity's table refuses every
// other transition.
type transitions[S comparable] map[S][]S

func (t transitions[S]) allow(from, to S) bool { return slices.Contains(t[from], to) }
