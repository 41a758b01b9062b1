package upstream

import (
	"context"
	"strings"
	"time"

	genericapiserver "k8s.io/apiserver/pkg/server"
)

// AwaitHooks waits until every post-start hook of the server and its delegates is
// done. A hook's done channel is not exported; a health check that looks at it is,
// so AwaitHooks asks the check every millisecond.
// https://github.com/kubernetes/apiserver/blob/v0.37.2/pkg/server/hooks.go#L62
func AwaitHooks(ctx context.Context, s *genericapiserver.GenericAPIServer) error {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		pending := ""
		for _, check := range s.HealthzChecks() {
			if strings.HasPrefix(check.Name(), "poststarthook/") && check.Check(nil) != nil {
				pending = check.Name()
			}
		}
		if pending == "" {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
