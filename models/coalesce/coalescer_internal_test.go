package coalesce

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"
)

// Requests that arrive during a batched call form the next batch. Its error reaches all of them.
func TestCoalescerMergesRequestsDuringACall(t *testing.T) {
	t.Parallel()
	began, goOn := make(chan []int), make(chan error)
	c := Coalescer[int, int]{Call: func(_ context.Context, asked []int) ([]int, error) {
		began <- slices.Clone(asked)
		if err := <-goOn; err != nil {
			return nil, err
		}
		doubled := make([]int, len(asked))
		for i, n := range asked {
			doubled[i] = 2 * n
		}
		return doubled, nil
	}}
	var asking sync.WaitGroup
	ask := func(n int, want error) {
		asking.Go(func() {
			got, err := c.Do(t.Context(), n)
			if !errors.Is(err, want) || err == nil && got != 2*n {
				t.Errorf("request %d: %d, %v", n, got, err)
			}
		})
	}
	failure := errors.New("failure")
	ask(1, nil)
	if first := <-began; len(first) != 1 {
		t.Fatalf("began with %v", first)
	}
	for n := 2; n <= 5; n++ {
		ask(n, failure)
	}
	awaitWaiting(t, &c, 4)
	goOn <- nil
	if second := <-began; len(second) != 4 {
		t.Errorf("the second batch is %v, want the four requests that arrived during the first", second)
	}
	goOn <- failure
	asking.Wait()
	ask(6, nil) // it works again after an idle time
	<-began
	goOn <- nil
	asking.Wait()
}

func TestCoalescerOutlivesAPanic(t *testing.T) {
	t.Parallel()
	c := Coalescer[int, int]{Call: func(_ context.Context, asked []int) ([]int, error) {
		if asked[0] < 0 {
			panic("negative")
		}
		return asked, nil
	}}
	if _, err := c.Do(t.Context(), -1); !errors.Is(err, ErrPanic) {
		t.Errorf("a panic became %v", err)
	}
	if got, err := c.Do(t.Context(), 1); got != 1 || err != nil {
		t.Errorf("after a panic: %d, %v", got, err)
	}
}

func TestCoalescerRefusesAWrongNumberOfValues(t *testing.T) {
	t.Parallel()
	c := Coalescer[int, int]{Call: func(_ context.Context, asked []int) ([]int, error) {
		return make([]int, asked[0]), nil
	}}
	for n, valid := range map[int]bool{0: false, 1: true, 2: false} {
		if _, err := c.Do(t.Context(), n); (err == nil) != valid {
			t.Errorf("%d values for one request: %v", n, err)
		}
	}
}

func TestCoalescerDropsRequestsOfCallersThatLeft(t *testing.T) {
	t.Parallel()
	began, goOn := make(chan []int), make(chan struct{})
	c := Coalescer[int, int]{Call: func(_ context.Context, asked []int) ([]int, error) {
		began <- slices.Clone(asked)
		<-goOn
		return asked, nil
	}}
	var asking sync.WaitGroup
	ask := func(ctx context.Context, n int, want error) {
		asking.Go(func() {
			if _, err := c.Do(ctx, n); !errors.Is(err, want) {
				t.Errorf("request %d: %v, want %v", n, err, want)
			}
		})
	}
	leaving, leave := context.WithCancel(t.Context())
	ask(leaving, 1, context.Canceled)
	<-began
	ask(leaving, 2, context.Canceled)
	ask(t.Context(), 3, nil)
	awaitWaiting(t, &c, 2)
	leave()
	goOn <- struct{}{}
	if second := <-began; !slices.Equal(second, []int{3}) {
		t.Errorf("the second batch is %v, want only 3: the caller of 2 has left", second)
	}
	goOn <- struct{}{}
	asking.Wait()
}

// awaitWaiting waits until n requests wait for the next batch.
func awaitWaiting(t *testing.T, c *Coalescer[int, int], n int) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; runtime.Gosched() {
		c.mu.Lock()
		waiting := len(c.waiting)
		c.mu.Unlock()
		if waiting >= n {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d requests wait, want %d", waiting, n)
		}
	}
}

// With a MinInterval, requests soon after a batch form one batch. A request after the interval, or
// a full batch, starts at once.
func TestCoalescerPaced(t *testing.T) {
	t.Parallel()
	began := make(chan int, 100)
	c := Coalescer[int, int]{MinInterval: time.Hour, Call: func(_ context.Context, asked []int) ([]int, error) {
		began <- len(asked)
		return asked, nil
	}}
	if got, err := c.Do(t.Context(), 1); got != 1 || err != nil {
		t.Fatalf("the first: %d, %v", got, err)
	}
	if n := <-began; n != 1 {
		t.Fatalf("the first batch has %d requests", n)
	}
	var asking sync.WaitGroup
	for n := range coalescerMaxBatch {
		asking.Go(func() {
			if got, err := c.Do(t.Context(), n); got != n || err != nil {
				t.Errorf("%d: %d, %v", n, got, err)
			}
		})
	}
	asking.Wait()
	if n := <-began; n != coalescerMaxBatch {
		t.Errorf("the second batch has %d requests", n)
	}
	c.mu.Lock()
	now := make(chan time.Time)
	close(now) // the hour is over
	c.next = now
	c.mu.Unlock()
	if got, err := c.Do(t.Context(), 2); got != 2 || err != nil {
		t.Errorf("after the interval: %d, %v", got, err)
	}
}
