package models

import "slices"

// transitions holds the allowed transitions of a state machine: the states that each state may
// become. Staying in a state is not a transition. The database refuses every other transition by
// a trigger of the table.
type transitions[S comparable] map[S][]S

func (t transitions[S]) allow(from, to S) bool { return slices.Contains(t[from], to) }
