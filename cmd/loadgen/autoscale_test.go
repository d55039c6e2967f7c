package main

import "testing"

// course returns a timeline of a wave, one second a moment.
func course(of func(m *moment, v float64), values ...float64) (line timeline) {
	for i, v := range values {
		m := moment{Second: float64(i), Wave: 1}
		of(&m, v)
		line = append(line, m)
	}
	return line
}

func desired(m *moment, v float64) { m.Desired = int(v) }

func oldest(m *moment, v float64) { m.OldestDue = v }

func TestTimelineReversals(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		line timeline
		want int
	}{
		"nothing":               {nil, 0},
		"no change":             {course(desired, 2, 2, 2), 0},
		"up":                    {course(desired, 2, 3, 3, 8), 0},
		"up and down":           {course(desired, 2, 8, 8, 5, 4), 1},
		"two waves":             {course(desired, 2, 8, 5, 6, 6, 2), 3},
		"an oscillation":        {course(desired, 2, 4, 3, 4, 3, 4, 2), 5},
		"down, after a plateau": {course(desired, 4, 4, 2), 0},
	} {
		if got := c.line.reversals(); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}

func TestTimelineOldest(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		line       timeline
		peak, jump float64
	}{
		"nothing":          {nil, 0, 0},
		"as time passes":   {course(oldest, 0, 1, 2, 3, 0), 3, 0},
		"slower than time": {course(oldest, 5, 5.5, 6, 4, 4), 6, 0},
		"due again":        {course(oldest, 0, 1, 2, 0, 4, 0), 4, 3},
		"due again, older": {course(oldest, 3, 0, 0, 6, 0), 6, 5},
	} {
		if peak, jump := c.line.oldest(); peak != c.peak || jump != c.jump {
			t.Errorf("%s: %g, %g, want %g, %g", name, peak, jump, c.peak, c.jump)
		}
	}
}

func TestTimelineParts(t *testing.T) {
	t.Parallel()
	line := timeline{
		{Second: 1, Wave: 1, Backlog: 100, Desired: 2, Running: 2},
		{Second: 2, Wave: 1, Backlog: 90, Desired: 4, Running: 2},
		{Second: 4, Wave: 1, Backlog: 50, Desired: 4, Running: 4},
		{Second: 5, Wave: 1, Backlog: 0, Desired: 4, Running: 4},
		{Second: 6, Wave: 2, Backlog: 10, Desired: 3, Running: 3},
	}
	first := line.of(1)
	if len(first) != 4 || len(line.of(2)) != 1 || line.of(3) != nil {
		t.Errorf("the parts are %v and %v", first, line.of(2))
	}
	if m := first.highest(); m.Second != 2 || m.Desired != 4 {
		t.Errorf("the highest moment is %+v", m)
	}
	if sum := first.workerSeconds(); sum != 2+2*4 {
		t.Errorf("%g seconds of workers, want 10", sum)
	}
}
