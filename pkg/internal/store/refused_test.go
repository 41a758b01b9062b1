package store

import (
	"context"
	"errors"
	"net/http"
	"testing"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// TestTold: a client is told whether to try again, and when.
func TestTold(t *testing.T) {
	t.Parallel()
	plain := errors.New("key not found")
	for name, c := range map[string]struct {
		err   error
		code  int // 0: as it was
		again bool
	}{
		"full of objects":   {rpctypes.ErrNoSpace, http.StatusInsufficientStorage, false},
		"full disk":         {grpcstatus.Error(codes.Unavailable, "write: no space left on device"), http.StatusInsufficientStorage, false},
		"makes room":        {grpcstatus.Error(codes.ResourceExhausted, "full of history"), http.StatusTooManyRequests, true},
		"too many requests": {rpctypes.ErrTooManyRequests, http.StatusServiceUnavailable, true},
		"too large":         {grpcstatus.Error(codes.ResourceExhausted, "trying to send message larger than max"), http.StatusRequestEntityTooLarge, false},
		"no answer":         {grpcstatus.Error(codes.Unavailable, "connection refused"), http.StatusServiceUnavailable, true},
		"certificate":       {grpcstatus.Error(codes.Unavailable, "x509: unknown authority"), http.StatusServiceUnavailable, true},
		"no leader":         {rpctypes.ErrNoLeader, http.StatusServiceUnavailable, true},
		"slow disk":         {rpctypes.ErrTimeout, http.StatusServiceUnavailable, true},
		"late":              {context.DeadlineExceeded, http.StatusServiceUnavailable, true},
		"compacted":         {rpctypes.ErrCompacted, 0, false},
		"anything else":     {plain, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := told(t.Context(), c.err)
			var s *apierrors.StatusError
			if c.code == 0 {
				if !errors.Is(err, c.err) || errors.As(err, &s) {
					t.Errorf("got %v, want it as it was", err)
				}
				return
			}
			if !errors.As(err, &s) || int(s.ErrStatus.Code) != c.code {
				t.Fatalf("got %v, want status %d", err, c.code)
			}
			if _, again := apierrors.SuggestsClientDelay(err); again != c.again {
				t.Errorf("Retry-After is %v, want %v", again, c.again)
			}
		})
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if err := told(over, context.Canceled); !errors.Is(err, context.Canceled) {
		t.Errorf("a request that is over got %v", err)
	}
}
