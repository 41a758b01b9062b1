package kube_test

// minimal has the least that each resource accepts, without apiVersion, kind
// and a name.
var minimal = map[string]string{
	"pods":                   `{"spec":` + pod + `}`,
	"podtemplates":           `{"template":{"spec":` + pod + `}}`,
	"replicationcontrollers": `{"spec":{"template":` + template + `}}`,
	"nodes":                  `{"status":{"nodeInfo":{"kubeletVersion":"v1.36.0"}}}`,
	"persistentvolumes":      `{"spec":{"capacity":{"storage":"1Gi"},"accessModes":["ReadWriteOnce"],"hostPath":{"path":"/a"}}}`,
	"persistentvolumeclaims": `{"spec":{"accessModes":["ReadWriteMany"],"resources":{"requests":{"storage":"1Gi"}}}}`,

	"deployments.apps":         `{"spec":{"selector":{"matchLabels":{"a":"b"}},"template":` + template + `}}`,
	"replicasets.apps":         `{"spec":{"selector":{"matchLabels":{"a":"b"}},"template":` + template + `}}`,
	"statefulsets.apps":        `{"spec":{"selector":{"matchLabels":{"a":"b"}},"template":` + template + `}}`,
	"daemonsets.apps":          `{"spec":{"selector":{"matchLabels":{"a":"b"}},"template":` + template + `}}`,
	"controllerrevisions.apps": `{"revision":1,"data":{"a":"b"}}`,

	"horizontalpodautoscalers.autoscaling": `{"spec":{"scaleTargetRef":{"kind":"Deployment","name":"a"},"maxReplicas":3}}`,

	"jobs.batch":     `{"spec":{"template":{"spec":` + once + `}}}`,
	"cronjobs.batch": `{"spec":{"schedule":"@daily","jobTemplate":{"spec":{"template":{"spec":` + once + `}}}}}`,

	"ingresses.networking.k8s.io":       `{"spec":{"defaultBackend":{"service":{"name":"a","port":{"number":80}}}}}`,
	"ingressclasses.networking.k8s.io":  `{"spec":{"controller":"example.com/a"}}`,
	"networkpolicies.networking.k8s.io": `{"spec":{"podSelector":{}}}`,
	"ipaddresses.networking.k8s.io":     `{"spec":{"parentRef":{"resource":"services","namespace":"b","name":"a"}}}`,
	"servicecidrs.networking.k8s.io":    `{"spec":{"cidrs":["10.0.0.0/24"]}}`,

	"poddisruptionbudgets.policy": `{"spec":{"minAvailable":1}}`,

	"storageclasses.storage.k8s.io":          `{"provisioner":"example.com/a"}`,
	"volumeattachments.storage.k8s.io":       `{"spec":{"attacher":"a","nodeName":"n","source":{"persistentVolumeName":"v"}}}`,
	"volumeattributesclasses.storage.k8s.io": `{"driverName":"a","parameters":{"a":"b"}}`,
	"csidrivers.storage.k8s.io":              `{"spec":{}}`,
	"csinodes.storage.k8s.io":                `{"spec":{"drivers":[]}}`,
	"csistoragecapacities.storage.k8s.io":    `{"storageClassName":"a"}`,

	"flowschemas.flowcontrol.apiserver.k8s.io":                 `{"spec":{"priorityLevelConfiguration":{"name":"a"}}}`,
	"prioritylevelconfigurations.flowcontrol.apiserver.k8s.io": `{"spec":{"type":"Limited","limited":{"limitResponse":{"type":"Queue","queuing":{}}}}}`,

	"priorityclasses.scheduling.k8s.io": `{"value":5}`,

	"runtimeclasses.node.k8s.io": `{"handler":"a"}`,

	"deviceclasses.resource.k8s.io":          `{"spec":{}}`,
	"devicetaintrules.resource.k8s.io":       `{"spec":{"taint":{"key":"example.com/a","effect":"NoSchedule","timeAdded":"9999-01-01T00:00:00Z"}}}`,
	"resourceclaims.resource.k8s.io":         `{"spec":` + claim + `}`,
	"resourceclaimtemplates.resource.k8s.io": `{"spec":{"spec":` + claim + `}}`,
	"resourceslices.resource.k8s.io":         `{"spec":{"driver":"a.example.com","pool":{"name":"p","generation":1,"resourceSliceCount":1},"nodeName":"n"}}`,

	"storageversionmigrations.storagemigration.k8s.io": `{"spec":{"resource":{"group":"apps","resource":"deployments"}}}`,
}

const (
	pod      = `{"containers":[{"name":"c","image":"i"}]}`
	once     = `{"restartPolicy":"Never","containers":[{"name":"c","image":"i"}]}`
	template = `{"metadata":{"labels":{"a":"b"}},"spec":` + pod + `}`
	claim    = `{"devices":{"requests":[{"name":"r","exactly":{"deviceClassName":"d"}}]}}`
)

// served is what discovery says of each resource: singular, kind, short names,
// categories, N for namespaced or C, and its sub-resources.
var served = map[string]string{
	"pods":                   "pod Pod po all N binding eviction status",
	"podtemplates":           "podtemplate PodTemplate - - N",
	"replicationcontrollers": "replicationcontroller ReplicationController rc all N scale status",
	"nodes":                  "node Node no - C status",
	"persistentvolumes":      "persistentvolume PersistentVolume pv - C status",
	"persistentvolumeclaims": "persistentvolumeclaim PersistentVolumeClaim pvc - N status",

	"deployments.apps":         "deployment Deployment deploy all N scale status",
	"replicasets.apps":         "replicaset ReplicaSet rs all N scale status",
	"statefulsets.apps":        "statefulset StatefulSet sts all N scale status",
	"daemonsets.apps":          "daemonset DaemonSet ds all N status",
	"controllerrevisions.apps": "controllerrevision ControllerRevision - - N",

	"horizontalpodautoscalers.autoscaling": "horizontalpodautoscaler HorizontalPodAutoscaler hpa all N status",

	"jobs.batch":     "job Job - all N status",
	"cronjobs.batch": "cronjob CronJob cj all N status",

	"ingresses.networking.k8s.io":       "ingress Ingress ing - N status",
	"ingressclasses.networking.k8s.io":  "ingressclass IngressClass - - C",
	"networkpolicies.networking.k8s.io": "networkpolicy NetworkPolicy netpol - N",
	"ipaddresses.networking.k8s.io":     "ipaddress IPAddress ip - C",
	"servicecidrs.networking.k8s.io":    "servicecidr ServiceCIDR - - C status",

	"poddisruptionbudgets.policy": "poddisruptionbudget PodDisruptionBudget pdb - N status",

	"storageclasses.storage.k8s.io":          "storageclass StorageClass sc - C",
	"volumeattachments.storage.k8s.io":       "volumeattachment VolumeAttachment - - C status",
	"volumeattributesclasses.storage.k8s.io": "volumeattributesclass VolumeAttributesClass vac - C",
	"csidrivers.storage.k8s.io":              "csidriver CSIDriver - - C",
	"csinodes.storage.k8s.io":                "csinode CSINode - - C status",
	"csistoragecapacities.storage.k8s.io":    "csistoragecapacity CSIStorageCapacity - - N",

	"flowschemas.flowcontrol.apiserver.k8s.io":                 "flowschema FlowSchema - - C status",
	"prioritylevelconfigurations.flowcontrol.apiserver.k8s.io": "prioritylevelconfiguration PriorityLevelConfiguration - - C status",

	"priorityclasses.scheduling.k8s.io": "priorityclass PriorityClass pc - C",

	"runtimeclasses.node.k8s.io": "runtimeclass RuntimeClass - - C",

	"deviceclasses.resource.k8s.io":          "deviceclass DeviceClass - - C",
	"devicetaintrules.resource.k8s.io":       "devicetaintrule DeviceTaintRule - - C status",
	"resourceclaims.resource.k8s.io":         "resourceclaim ResourceClaim - - N status",
	"resourceclaimtemplates.resource.k8s.io": "resourceclaimtemplate ResourceClaimTemplate - - N",
	"resourceslices.resource.k8s.io":         "resourceslice ResourceSlice - - C",

	"storageversionmigrations.storagemigration.k8s.io": "storageversionmigration StorageVersionMigration - - C status",
}

// printed is what kubectl get -o wide prints of the minimal object: the columns
// and the cells, without the time.
var printed = map[string]string{
	"pods":                   "Name=a Ready=0/1 Status=Pending Restarts=0 Age IP=<none> Node=<none> Nominated Node=<none> Readiness Gates=<none>",
	"podtemplates":           "Name=a Containers=c Images=i Pod Labels=<none>",
	"replicationcontrollers": "Name=a Desired=1 Current=0 Ready=0 Age Containers=c Images=i Selector=a=b",
	"nodes":                  "Name=a Status=Unknown Roles=<none> Age Version=v1.36.0 Internal-IP=<none> External-IP=<none> OS-Image=<unknown> Kernel-Version=<unknown> Container-Runtime=<unknown>",
	"persistentvolumes":      "Name=a Capacity=1Gi Access Modes=RWO Reclaim Policy=Retain Status=Pending Claim= StorageClass= VolumeAttributesClass=<unset> Reason= Age VolumeMode=Filesystem",
	"persistentvolumeclaims": "Name=a Status=Pending Volume= Capacity= Access Modes= StorageClass= VolumeAttributesClass=<unset> Age VolumeMode=Filesystem",

	"deployments.apps":         "Name=a Ready=0/1 Up-to-date=0 Available=0 Age Containers=c Images=i Selector=a=b",
	"replicasets.apps":         "Name=a Desired=1 Current=0 Ready=0 Age Containers=c Images=i Selector=a=b",
	"statefulsets.apps":        "Name=a Ready=0/1 Age Containers=c Images=i",
	"daemonsets.apps":          "Name=a Desired=0 Current=0 Ready=0 Up-to-date=0 Available=0 Node Selector=<none> Age Containers=c Images=i Selector=a=b",
	"controllerrevisions.apps": "Name=a Controller=<none> Revision=1 Age",

	"horizontalpodautoscalers.autoscaling": "Name=a Reference=Deployment/a Targets=cpu: <unknown>/80% MinPods=1 MaxPods=3 Replicas=0 Age",

	"jobs.batch":     "Name=a Status=Running Completions=0/1 Duration= Age Containers=c Images=i Selector=batch.kubernetes.io/controller-uid=UID",
	"cronjobs.batch": "Name=a Schedule=@daily Timezone=<none> Suspend=false Active=0 Last Schedule=<none> Age Containers=c Images=i Selector=<none>",

	"ingresses.networking.k8s.io":       "Name=a Class=<none> Hosts=* Address= Ports=80 Age",
	"ingressclasses.networking.k8s.io":  "Name=a Controller=example.com/a Parameters=<none> Age",
	"networkpolicies.networking.k8s.io": "Name=a Pod-Selector=<none> Age",
	"ipaddresses.networking.k8s.io":     "Name=10.0.0.1 ParentRef=services/b/a Age",
	"servicecidrs.networking.k8s.io":    "Name=a CIDRs=10.0.0.0/24 Age",

	"poddisruptionbudgets.policy": "Name=a Min Available=1 Max Unavailable=N/A Allowed Disruptions=0 Age",

	"storageclasses.storage.k8s.io":          "Name=a Provisioner=example.com/a ReclaimPolicy=Delete VolumeBindingMode=Immediate AllowVolumeExpansion=false Age",
	"volumeattachments.storage.k8s.io":       "Name=a Attacher=a PV=v Node=n Attached=false Age",
	"volumeattributesclasses.storage.k8s.io": "Name=a DriverName=a Age",
	"csidrivers.storage.k8s.io":              "Name=a AttachRequired=true PodInfoOnMount=false StorageCapacity=false TokenRequests=<unset> RequiresRepublish=false Modes=Persistent Age",
	"csinodes.storage.k8s.io":                "Name=a Drivers=0 Age",
	"csistoragecapacities.storage.k8s.io":    "Name=a StorageClassName=a Capacity=<unset> Age",

	"flowschemas.flowcontrol.apiserver.k8s.io":                 "Name=a PriorityLevel=a MatchingPrecedence=1000 DistinguisherMethod=<none> Age MissingPL=?",
	"prioritylevelconfigurations.flowcontrol.apiserver.k8s.io": "Name=a Type=Limited NominalConcurrencyShares=30 Queues=64 HandSize=8 QueueLengthLimit=50 Age",

	"priorityclasses.scheduling.k8s.io": "Name=a Value=5 Global-Default=false Age PreemptionPolicy=PreemptLowerPriority",

	"runtimeclasses.node.k8s.io": "Name=a Handler=a Age",

	"deviceclasses.resource.k8s.io":          "Name=a Age",
	"devicetaintrules.resource.k8s.io":       "Name=a Key=example.com/a Value= Effect=NoSchedule TimeAdded=<invalid> Age",
	"resourceclaims.resource.k8s.io":         "Name=a State=pending Age",
	"resourceclaimtemplates.resource.k8s.io": "Name=a Age",
	"resourceslices.resource.k8s.io":         "Name=a Node=n Driver=a.example.com Pool=p Age",

	"storageversionmigrations.storagemigration.k8s.io": "Name=a Resource=deployments.apps Status=Unknown",
}
