package queuetest

import (
	"context"
	"sync"

	"github.com/redis/go-redis/v9"
)

// CommandHook is a hook of a Redis client that handles each single command. next runs the command.
// Pipelines and dials pass unchanged.
type CommandHook func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error

// DialHook implements redis.Hook.
func (CommandHook) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook implements redis.Hook.
func (h CommandHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error { return h(ctx, cmd, next) }
}

// ProcessPipelineHook implements redis.Hook.
func (CommandHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// Hold makes the commands of a client that match wait until release is called. held receives a
// value for each of the first 64 that wait. release may be called repeatedly.
func Hold(client redis.UniversalClient, match func(redis.Cmder) bool) (held <-chan struct{}, release func()) {
	waiting, released := make(chan struct{}, 64), make(chan struct{})
	client.AddHook(CommandHook(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
		if match(cmd) {
			select {
			case waiting <- struct{}{}:
			default:
			}
			<-released
		}
		return next(ctx, cmd)
	}))
	return waiting, sync.OnceFunc(func() { close(released) })
}
