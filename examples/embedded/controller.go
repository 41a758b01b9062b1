package main

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// greet is the controller: it prints the greeting of every ConfigMap that has
// one, and returns when the context has ended and its informer has stopped. It
// calls follows as soon as it will miss no change.
func greet(ctx context.Context, config *rest.Config, follows func() error) error {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	factory := informers.NewSharedInformerFactory(client, 0)
	seen := func(obj any) {
		if cm, ok := obj.(*corev1.ConfigMap); ok && cm.Data["greeting"] != "" {
			fmt.Printf("%s/%s says %s\n", cm.Namespace, cm.Name, cm.Data["greeting"])
		}
	}
	_, err = factory.Core().V1().ConfigMaps().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    seen,
		UpdateFunc: func(_, obj any) { seen(obj) },
	})
	if err != nil {
		return err
	}
	defer factory.Shutdown()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	factory.StartWithContext(ctx)
	if res := factory.WaitForCacheSyncWithContext(ctx); res.Err != nil {
		return nil // the program was interrupted
	}
	if err := follows(); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}
