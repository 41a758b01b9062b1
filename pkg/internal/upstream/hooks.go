package upstream

import (
	"context"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/healthz"
)

// AwaitHooks waits until every post-start hook of the server and its delegates is
// done. A hook's done channel is not exported; a health check that looks at it is,
// so AwaitHooks asks the check every millisecond.
// https://github.com/kubernetes/apiserver/blob/v0.37.2/pkg/server/hooks.go#L62
func AwaitHooks(ctx context.Context, s *genericapiserver.GenericAPIServer) error {
	err := wait.PollUntilContextCancel(ctx, time.Millisecond, true, func(context.Context) (done bool, _ error) {
		return !slices.ContainsFunc(s.HealthzChecks(), func(check healthz.HealthChecker) bool {
			return strings.HasPrefix(check.Name(), "poststarthook/") && check.Check(nil) != nil
		}), nil
	})
	if err != nil {
		return context.Cause(ctx)
	}
	return nil
}
