package api

import "partnerbilling/models"

// maxNotified is the maximum number of tasks that one request wakes workers for. The dispatcher
// finds the rest when it polls.
const maxNotified = 100

// notifyTasks wakes workers for tasks, at most maxNotified of them. notify may be nil. A single
// task may be zero, which means that there is none.
func notifyTasks(notify func([]models.TaskID), tasks ...models.TaskID) {
	if notify != nil && len(tasks) > 0 && !tasks[0].IsZero() {
		notify(tasks[:min(len(tasks), maxNotified)])
	}
}
