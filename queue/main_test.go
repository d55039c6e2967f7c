package queue_test

import (
	"testing"

	"partnerbilling/models/modelstest"
)

func TestMain(m *testing.M) { modelstest.Main(m) }
