package models

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
)

func TestGatherDoesAsOneWhatComesMeanwhile(t *testing.T) {
	t.Parallel()
	began, goOn := make(chan []int), make(chan error)
	g := Gather[int, int]{Do: func(_ context.Context, asked []int) ([]int, error) {
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
			got, err := g.Ask(t.Context(), n)
			if !errors.Is(err, want) || err == nil && got != 2*n {
				t.Errorf("asked %d: %d, %v", n, got, err)
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
	awaitWaiting(&g, 4)
	goOn <- nil
	if second := <-began; len(second) != 4 {
		t.Errorf("did %v as one, want those four that came meanwhile", second)
	}
	goOn <- failure
	asking.Wait()
	ask(6, nil) // it goes on after it has been idle
	<-began
	goOn <- nil
	asking.Wait()
}

func TestGatherOutlivesAPanic(t *testing.T) {
	t.Parallel()
	g := Gather[int, int]{Do: func(_ context.Context, asked []int) ([]int, error) {
		if asked[0] < 0 {
			panic("negative")
		}
		return asked, nil
	}}
	if _, err := g.Ask(t.Context(), -1); !errors.Is(err, ErrPanic) {
		t.Errorf("a panic became %v", err)
	}
	if got, err := g.Ask(t.Context(), 1); got != 1 || err != nil {
		t.Errorf("after a panic: %d, %v", got, err)
	}
}

func TestGatherLeavesOutWhoHasLeft(t *testing.T) {
	t.Parallel()
	began, goOn := make(chan []int), make(chan struct{})
	g := Gather[int, int]{Do: func(_ context.Context, asked []int) ([]int, error) {
		began <- slices.Clone(asked)
		<-goOn
		return asked, nil
	}}
	var asking sync.WaitGroup
	ask := func(ctx context.Context, n int, want error) {
		asking.Go(func() {
			if _, err := g.Ask(ctx, n); !errors.Is(err, want) {
				t.Errorf("asked %d: %v, want %v", n, err, want)
			}
		})
	}
	leaving, leave := context.WithCancel(t.Context())
	ask(leaving, 1, context.Canceled)
	<-began
	ask(leaving, 2, context.Canceled)
	ask(t.Context(), 3, nil)
	awaitWaiting(&g, 2)
	leave()
	goOn <- struct{}{}
	if second := <-began; !slices.Equal(second, []int{3}) {
		t.Errorf("did %v after one had left, want 3 alone", second)
	}
	goOn <- struct{}{}
	asking.Wait()
}

// awaitWaiting waits until so many wait for the next doing.
func awaitWaiting(g *Gather[int, int], n int) {
	for waiting := 0; waiting < n; {
		g.mu.Lock()
		waiting = len(g.waiting)
		g.mu.Unlock()
	}
}
