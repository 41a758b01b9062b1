package main

import (
	"testing"

	"github.com/sailplane-dev/sailplane/pkg/apis/apitest"
)

func TestConversionsLoseNothing(t *testing.T) {
	t.Parallel()
	apitest.RoundTrip(t, fruits())
}
