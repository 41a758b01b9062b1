package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/sailplane-dev/sailplane/cmd/sailplane/internal/server"
	"github.com/sailplane-dev/sailplane/pkg/storageapi/v1alpha1"
)

func tenantsCommand() *cobra.Command {
	s := &settings{}
	output := choice{value: "text", allowed: []string{"text", "json"}}
	c := &cobra.Command{
		Use:   "tenants",
		Short: "Show the EtcdStorages of a running server, and what they use",
		Long: `Show the EtcdStorages of a running server: whether each can be used, where its data is,
what it has of which limit, and why something is wrong. Those with the most bytes come
first. What is used is counted while a client is connected.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, c, err := s.document()
			if err != nil {
				return err
			}
			all, err := tenants(cmd.Context(), server.Kubeconfig(c))
			if err != nil {
				return err
			}
			if output.value == "json" {
				to := json.NewEncoder(cmd.OutOrStdout())
				to.SetIndent("", "  ")
				return to.Encode(all)
			}
			return writeTenants(cmd.OutOrStdout(), all)
		},
	}
	c.AddCommand(backupTenantCommand(), restoreTenantCommand())
	askWith(c, s)
	c.Flags().VarP(&output, "output", "o", "format: "+strings.Join(output.allowed, ", "))
	_ = c.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(output.allowed, cobra.ShellCompDirectiveNoFileComp))
	return c
}

// tenantPage is how many EtcdStorages one request reads.
const tenantPage = 500

// tenants lists the EtcdStorages of the server of a kubeconfig, those with the most bytes first.
func tenants(ctx context.Context, kubeconfig string) ([]v1alpha1.EtcdStorage, error) {
	c, err := connect(kubeconfig)
	if err != nil {
		return nil, err
	}
	all := []v1alpha1.EtcdStorage{}
	of := c.objects.Resource(v1alpha1.SchemeGroupVersion().WithResource("etcdstorages"))
	for next := ""; ; {
		list, err := of.List(ctx, metav1.ListOptions{Limit: tenantPage, Continue: next})
		if apierrors.IsNotFound(err) {
			return nil, fmt.Errorf("the server at %s lends no storage: "+
				"start it with --storage-api, or with storageapi.EtcdStorages{}", c.host)
		}
		if err != nil {
			return nil, fmt.Errorf("list EtcdStorages at %s: %w", c.host, err)
		}
		for _, o := range list.Items {
			var s v1alpha1.EtcdStorage
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &s); err != nil {
				return nil, fmt.Errorf("read EtcdStorage %s: %w", o.GetName(), err)
			}
			all = append(all, s)
		}
		if next = list.GetContinue(); next == "" {
			break
		}
	}
	slices.SortFunc(all, func(a, b v1alpha1.EtcdStorage) int {
		return cmp.Or(cmp.Compare(used(&b).Bytes, used(&a).Bytes), cmp.Compare(a.Name, b.Name))
	})
	return all, nil
}

func used(s *v1alpha1.EtcdStorage) v1alpha1.EtcdStorageUsage {
	if s.Status.Used == nil {
		return v1alpha1.EtcdStorageUsage{}
	}
	return *s.Status.Used
}

// writeTenants prints a table of EtcdStorages, and below it why some cannot be used.
func writeTenants(to io.Writer, all []v1alpha1.EtcdStorage) error {
	w := &tables{to: tabwriter.NewWriter(to, 0, 0, 3, ' ', 0)}
	if len(all) == 0 {
		w.line("This server lends storage to nobody: create an EtcdStorage.")
		return w.to.Flush()
	}
	w.line("ETCDSTORAGE", "READY", "STORAGE", "KEYS", "OF", "BYTES", "OF", "AGE")
	var below []string
	for i := range all {
		s := &all[i]
		ready := "Unknown"
		if c := meta.FindStatusCondition(s.Status.Conditions, v1alpha1.ConditionReady); c != nil {
			ready = string(c.Status)
			if c.Status != metav1.ConditionTrue || c.Reason == v1alpha1.ReasonDestinationUnknown {
				below = append(below, s.Name+": "+c.Reason+": "+c.Message)
			}
		}
		keys, bytes := "-", "-"
		if u := s.Status.Used; u != nil {
			keys, bytes = fmt.Sprint(u.Keys), resource.NewQuantity(u.Bytes, resource.BinarySI).String()
		}
		w.line(s.Name, ready, orNone(s.Status.Storage), keys, limitOf(s.Spec.Limits.Keys), bytes, quantityOf(s.Spec.Limits.Bytes),
			duration.HumanDuration(time.Since(s.CreationTimestamp.Time)))
	}
	if len(below) > 0 {
		fmt.Fprintln(w.to)
	}
	for _, line := range below {
		w.line(line)
	}
	return w.to.Flush()
}

// limitOf is a limit of the object; without one it is that of the server.
func limitOf(n *int64) string {
	if n == nil {
		return "-"
	}
	return fmt.Sprint(*n)
}

func quantityOf(q *resource.Quantity) string {
	if q == nil {
		return "-"
	}
	return q.String()
}
