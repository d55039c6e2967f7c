package requestlog

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"time"

	"partnerbilling/models"
)

// Position is a position in the request log of an organisation. Its number is valid in one list
// only. In any other list, such as that of another process or after a restart, its time is used
// instead.
type Position struct {
	list   string        // the id of the records; "" if the log had none of the organisation
	number int64         // of the request before the position, in that list
	at     models.Millis // the time of that request, or of the caller
}

// String returns the position as ParsePosition reads it.
func (p Position) String() string { return fmt.Sprintf("%s:%d:%d", p.list, p.number, p.at) }

var positionPattern = regexp.MustCompile(`^([A-Z2-7]{0,32}):(0|[1-9][0-9]{0,17}):(0|[1-9][0-9]{0,17})$`)

// ErrPosition reports a text that is not a position.
var ErrPosition = errors.New("requestlog: not a position in the request log")

// ParsePosition parses a position as String writes it. It returns ErrPosition for any other text.
func ParsePosition(text string) (Position, error) {
	parts := positionPattern.FindStringSubmatch(text)
	if parts == nil {
		return Position{}, ErrPosition
	}
	// The pattern admits only numbers that fit.
	number, _ := strconv.ParseInt(parts[2], 10, 64)
	at, _ := strconv.ParseInt(parts[3], 10, 64)
	return Position{parts[1], number, models.Millis(at)}, nil
}

// Entry is a request of the log, and the position after it.
type Entry struct {
	LoggedRequest

	Position Position
}

// End returns the position after the latest request of an organisation. now becomes the time of the
// position.
func (l *Log) End(organisation models.OrganisationID, now time.Time) (end Position) {
	l.kept.read(organisation, func(kept *records[LoggedRequest]) {
		end = Position{kept.id, kept.added, models.MillisOf(now)}
	})
	return end
}

// Newest returns up to limit requests of an organisation that match, newest first. end is the
// position after the latest request. now becomes the time of that position.
func (l *Log) Newest(
	organisation models.OrganisationID, now time.Time, limit int, matches func(*LoggedRequest) bool,
) (found []LoggedRequest, end Position) {
	l.kept.read(organisation, func(kept *records[LoggedRequest]) {
		end = Position{kept.id, kept.added, models.MillisOf(now)}
		for _, r := range slices.Backward(kept.list) {
			if len(found) == limit {
				return
			}
			if matches(&r.value) {
				found = append(found, r.value)
			}
		}
	})
	return found, end
}

// After returns up to limit requests after a position that match, oldest first. next is the
// position from which to go on. more reports whether After has left later requests unread.
func (l *Log) After(
	organisation models.OrganisationID, from Position, limit int, matches func(*LoggedRequest) bool,
) (found []Entry, next Position, more bool) {
	next = from
	l.kept.read(organisation, func(kept *records[LoggedRequest]) {
		if from.list == kept.id {
			next.number = min(next.number, kept.added) // a client may send any number
		}
		i := indexAfter(kept, from)
		for ; i < len(kept.list) && len(found) < limit; i++ {
			e := &kept.list[i].value
			next = Position{kept.id, kept.number(i), models.MillisOf(e.At)}
			if matches(e) {
				found = append(found, Entry{*e, next})
			}
		}
		more = i < len(kept.list)
	})
	return found, next, more
}

// indexAfter returns the index of the first request after a position. For a position of another
// list, it is the first request at or after the position's millisecond.
func indexAfter(kept *records[LoggedRequest], from Position) int {
	if from.list == kept.id {
		return kept.indexAfter(from.number)
	}
	i := slices.IndexFunc(kept.list, func(r record[LoggedRequest]) bool {
		return models.MillisOf(r.value.At) >= from.at
	})
	if i < 0 {
		return len(kept.list)
	}
	return i
}
