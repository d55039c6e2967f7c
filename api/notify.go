package api

import "partnerbilling/models"

// notifyTasks wakes workers for tasks, at most 100 of them. notify may be nil, and a zero task
// means that there is none.
func notifyTasks(notify func([]models.TaskID), tasks ...models.TaskID) {
	if notify != nil && len(tasks) > 0 && !tasks[0].IsZero() {
		notify(tasks[:min(len(tasks), 100)]) // the dispatcher finds the rest when it polls
	}
}
