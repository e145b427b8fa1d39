{{/* Made by deploy/helm/generate.py from deploy/k8s/base/*.toml. */}}
{{- define "aerobee.brokerBase" -}}
{
  "cluster": "aerobee",
  "listen": "0.0.0.0:10911",
  "nameservers": [
    "aerobee-nameserver:8081"
  ],
  "store_root": "/var/lib/aerobee/store",
  "health": {
    "listen": "0.0.0.0:10912"
  },
  "metrics": {
    "listen": "0.0.0.0:5557"
  }
}
{{- end }}
{{- define "aerobee.nameserverBase" -}}
{
  "cluster": "aerobee",
  "listen": "0.0.0.0:8081",
  "etcd": {
    "endpoints": [
      "aerobee-etcd-0.aerobee-etcd:2379"
    ]
  },
  "health": {
    "listen": "0.0.0.0:10912"
  },
  "metrics": {
    "listen": "0.0.0.0:5557"
  }
}
{{- end }}
