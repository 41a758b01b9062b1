package main

import (
	"testing"

	"github.com/sailplane-dev/sailplane/pkg/resource/resourcetest"
)

func TestConversionsLoseNothing(t *testing.T) {
	t.Parallel()
	resourcetest.RoundTrip(t, fruits())
}
