package coalesce

import (
	"errors"
	"fmt"
	"runtime/debug"
)

// ErrPanic is wrapped by the error that CatchPanic makes.
var ErrPanic = errors.New("coalesce: panic")

// CatchPanic turns a panic of the function that defers it into an error in *err, with the stack. It
// is for goroutines that work for several callers, where an uncaught panic would end the process.
// Without a panic, *err stays as it is.
func CatchPanic(err *error) {
	if fault := recover(); fault != nil {
		*err = fmt.Errorf("%w: %v\n%s", ErrPanic, fault, debug.Stack())
	}
}
