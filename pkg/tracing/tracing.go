// Package tracing has a part that sends spans of requests, and of what they
// cause in admission and the storage, to an OpenTelemetry collector.
package tracing

import (
	"context"
	"fmt"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/sdk/resource"
	"go.opentelemetry.io/otel/sdk/trace"
	"k8s.io/component-base/tracing"
	tracingv1 "k8s.io/component-base/tracing/api/v1"

	"github.com/sailplane-dev/sailplane/pkg/controlplane"
)

// OTLP sends spans over OTLP/gRPC. Requests of system:masters join the trace that
// their caller names (W3C Trace Context); those of others begin their own, and
// link to it. Without a collector spans are dropped, and requests are served as
// usual.
// https://kubernetes.io/docs/concepts/cluster-administration/system-traces/
type OTLP struct {
	// Endpoint is the collector, HOST:PORT or unix:///PATH. The connection to it
	// is not encrypted: run one on the same machine. Empty: localhost:4317.
	Endpoint string
	// SamplesPerMillion is how many of a million requests are traced when their
	// callers do not decide. 0: only those whose callers ask for it.
	SamplesPerMillion int32
	// Service is the name of the server in spans, service.name. Empty: "sailplane".
	Service string
}

// PartName implements the name errors use.
func (OTLP) PartName() string { return "tracing.OTLP" }

// Install implements controlplane.Part.
func (OTLP) Install(*controlplane.Plan) error { return controlplane.ErrServerOnly }

// InstallServer declares the tracer.
func (o OTLP) InstallServer(p *controlplane.ServerPlan) error {
	if o.Endpoint == "" {
		o.Endpoint = "localhost:4317"
	}
	if o.Service == "" {
		o.Service = "sailplane"
	}
	config := &tracingv1.TracingConfiguration{Endpoint: &o.Endpoint, SamplingRatePerMillion: &o.SamplesPerMillion}
	if errs := tracingv1.ValidateTracingConfiguration(config, nil, nil); len(errs) > 0 {
		return fmt.Errorf("fields Endpoint and SamplesPerMillion: %w", errs.ToAggregate())
	}
	p.Trace("OTLP", func() (tracing.TracerProvider, error) { return o.provider() })
	return nil
}

// provider records spans and sends them in batches.
func (o OTLP) provider() (*provider, error) {
	ctx := context.Background() // nothing waits for the collector
	exporter, err := otlptracegrpc.New(ctx, otlptracegrpc.WithEndpoint(o.Endpoint), otlptracegrpc.WithInsecure())
	if err != nil {
		return nil, err
	}
	service, err := resource.New(ctx, resource.WithAttributes(attribute.String("service.name", o.Service)))
	if err != nil {
		return nil, err
	}
	const million = 1_000_000
	return &provider{exporter: exporter, TracerProvider: trace.NewTracerProvider(
		trace.WithSampler(trace.ParentBased(trace.TraceIDRatioBased(float64(o.SamplesPerMillion)/million))),
		trace.WithBatcher(exporter),
		trace.WithResource(service),
	)}, nil
}

// provider also ends an export that waits in vain.
type provider struct {
	*trace.TracerProvider
	exporter trace.SpanExporter
}

// Shutdown implements tracing.TracerProvider. When the context ends it gives up
// spans that were not sent.
func (p *provider) Shutdown(ctx context.Context) error {
	err := p.TracerProvider.Shutdown(ctx)
	if err != nil {
		_ = p.exporter.Shutdown(ctx) // ends an export that still waits
	}
	return err
}
