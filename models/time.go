package models

import "time"

// Millis is a point in time, as on the wire and in the database: Unix milliseconds, UTC.
type Millis int64

// MillisOf truncates a time to whole milliseconds.
func MillisOf(t time.Time) Millis { return Millis(t.UnixMilli()) }

// Time returns the point in time as a time.Time, in UTC.
func (m Millis) Time() time.Time { return time.UnixMilli(int64(m)).UTC() }

// Add returns the point in time d later. It truncates d to whole milliseconds.
func (m Millis) Add(d time.Duration) Millis { return m + Millis(d.Milliseconds()) }

// Sub returns the duration from o to m.
func (m Millis) Sub(o Millis) time.Duration { return time.Duration(m-o) * time.Millisecond }

// isAhead reports whether m is at least the duration least and at most the duration most after now.
func (m Millis) isAhead(now Millis, least, most time.Duration) bool {
	return m >= now.Add(least) && m <= now.Add(most)
}

// Age is a duration that a statement has computed, in milliseconds.
type Age int64

// Duration returns the age as a time.Duration.
func (a Age) Duration() time.Duration { return time.Duration(a) * time.Millisecond }
