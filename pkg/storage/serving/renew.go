package serving

import (
	"context"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"
)

// renew renews the certificates of the folder in time. Each connection gets those that
// the folder then has.
func (s Server) renew(ctx context.Context) {
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		if err := s.load(ctx); err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Failed to renew the certificates of the endpoint, will try again", "folder", s.CertDir)
		}
	}, renewEvery)
}
