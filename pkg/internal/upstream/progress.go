package upstream

import (
	"context"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/feature"
)

// AllowProgressRequests tells the process-wide feature checker that the
// storages of this process answer watch progress requests, which consistent
// lists from the watch cache and WatchList need. The checker learns it from the
// endpoints of a client; one that is reached in-process has none.
// https://github.com/kubernetes/apiserver/blob/v0.37.2/pkg/storage/feature/feature_support_checker.go
func AllowProgressRequests(ctx context.Context) error {
	checker := feature.DefaultFeatureSupportChecker
	if checker.Supports(storage.RequestWatchProgress) {
		return nil
	}
	checker.CheckClient(ctx, inProcess{}, storage.RequestWatchProgress)
	// The check runs in a goroutine that calls Status at once.
	err := wait.PollUntilContextCancel(ctx, 100*time.Microsecond, true, func(context.Context) (done bool, _ error) {
		return checker.Supports(storage.RequestWatchProgress), nil
	})
	if err != nil {
		return fmt.Errorf("watch progress requests: %w", context.Cause(ctx))
	}
	return nil
}

// inProcess is a client of a storage in this process: no endpoint that could
// be another server's, and a version that has working progress requests.
type inProcess struct{}

func (inProcess) Endpoints() []string { return []string{"in-process"} }

func (inProcess) Status(context.Context, string) (*clientv3.StatusResponse, error) {
	return &clientv3.StatusResponse{Version: "3.6.0"}, nil
}
